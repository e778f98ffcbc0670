//! OTLP in, as the edge and a gateway with `source.otlp` share it: the server's config and limits, the memory for JSON, and the end of a process
//! that has clients.
//!
//! | file | is |
//! | --- | --- |
//! | [`serving`] | the OTLP server: its config, its limits and what it logs |
//! | [`tenants`] | what each tenant may send |
//! | [`json`] | memory to rewrite a request in JSON |
//! | [`in_flight`] | counts requests under way |
//! | [`ending`] | stops the server in order |

pub mod ending;
pub mod in_flight;
pub mod json;
pub mod serving;
pub mod tenants;
