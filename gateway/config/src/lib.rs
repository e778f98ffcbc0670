//! The contract between operator and gateway: configuration, units, memory budget
