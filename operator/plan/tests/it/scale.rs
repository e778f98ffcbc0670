//! Scaling decisions: the invariants over random courses, and one line for each failure that others react to wrongly.

mod course;
mod drain;
mod failures;
mod idle;
mod invariants;
mod logs;
mod lost;
mod requests;
mod room;
mod rules;
mod specs;
mod stuck_partitions;
mod trials;
mod words;
