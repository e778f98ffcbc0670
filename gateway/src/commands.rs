//! Commands that a person or the operator runs beside the gateway.
//!
//! Owner: the command's own thread, in its own process; no command joins the consumer group. They use the same code as the gateway, so
//! their results are what the gateway would find.
//!
//! | command | run | does |
//! | --- | --- | --- |
//! | [`check`] | before a start | reports what is wrong with the config, Kafka and the table; changes nothing |
//! | [`ddl`] | before a start | prints, compares or creates the table |
//! | [`audit`] | beside a gateway | compares Kafka with the table, span by span; changes nothing |
//! | [`dead_letter`] | beside a gateway | lists, shows and replays messages of the dead-letter topic |
//! | [`drain`] | after a gateway | empties a queue volume whose gateway is gone |

pub mod check;
pub mod ddl;

pub mod audit;
pub mod dead_letter;

pub mod drain;
