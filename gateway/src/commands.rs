//! What a person or the operator runs beside the gateway.
//!
//! Owner: the command's own thread, in a process of its own; none of them joins the consumer group. They use the rooms that the
//! gateway runs with, so that what they find is what it would find.
//!
//! | command | before, beside or after | does |
//! | --- | --- | --- |
//! | [`check`] | before a start | says what is wrong with the config, Kafka and the table; changes nothing |
//! | [`ddl`] | before a start | prints, compares or makes the table |
//! | [`audit`] | beside | compares Kafka with the table, span by span; changes nothing |
//! | [`dead_letter`] | beside | lists, shows and replays what was put into the dead-letter topic |
//! | [`drain`] | after | empties a queue volume whose gateway is gone |

pub mod check;
pub mod ddl;

pub mod audit;
pub mod dead_letter;

pub mod drain;
