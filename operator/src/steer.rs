//! Decides and carries out how many gateways run, and with which revision.
//!
//! | module | does |
//! | --- | --- |
//! | [`scaling`] | samples, and the autoscaler's decision |
//! | [`drain`] | drains gateways before they are removed |
//! | [`undrain`] | resumes gateways that drain without a request |
//! | [`rollout`] | a new revision: one gateway first, then the others, or back |
//! | [`schema`] | runs the schema Job again when gateways miss the table |

pub mod drain;
pub mod rollout;
pub mod scaling;
pub mod schema;
pub mod undrain;
