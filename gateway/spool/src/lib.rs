//! The queue volume of a gateway
