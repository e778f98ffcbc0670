//! The last insert that failed for a reason that does not lie in its rows: what the log says of the first such insert, for `GET /state`.
//!
//! Delivery notes each failure, and an I/O thread reads the last one. The lock is held for a copy of some hundred bytes.

use sluice_clickhouse::{insert::InsertError, outcome::Class};
use sluice_gateway_config::{INSERT_ERROR_CHARS_MAX, InsertErrorState, cut_in_the_middle};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last failure; none before the first.
#[derive(Debug, Default)]
pub struct LastInsertError {
    last: Mutex<Option<InsertErrorState>>,
}

impl LastInsertError {
    /// Notes a failure. One that lies in the rows says nothing about the server, and its text may quote them.
    pub fn note(&self, error: &InsertError) {
        if is_of_rows(error.class) {
            return;
        }
        let text = Some(&error.message).filter(|text| may_be_told(error) && !text.is_empty());
        let cut = |text: &str| cut_in_the_middle(text, INSERT_ERROR_CHARS_MAX);
        *self.last() = Some(InsertErrorState {
            class: error.class.label().to_owned(),
            code: error.code,
            message: text.map(|text| cut(text)),
            endpoint: Some(cut(&error.endpoint)),
            table: Some(cut(&error.table)),
        });
    }

    /// The last one.
    pub fn state(&self) -> Option<InsertErrorState> {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, Option<InsertErrorState>> {
        // It is replaced in one step, so that a thread that panicked left a whole one.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of_rows(class: Class) -> bool {
    match class {
        Class::Poison | Class::Split | Class::Done => true,
        Class::Retry | Class::BackPressure | Class::InDoubt | Class::RefreshSchema | Class::Halt => false,
    }
}

/// Whether the text is about a connection, rights, settings or a server. That of other answers may quote values of rows.
fn may_be_told(error: &InsertError) -> bool {
    match error.class {
        Class::Retry | Class::BackPressure | Class::Halt => true,
        Class::InDoubt => error.code.is_none(),
        Class::RefreshSchema | Class::Poison | Class::Split | Class::Done => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: Class, code: Option<u32>, message: &str) -> InsertError {
        InsertError {
            class,
            code,
            http_status: None,
            message: message.into(),
            endpoint: "http://clickhouse:8123".into(),
            table: "`otel`.`otel_traces`".into(),
        }
    }

    #[test]
    fn the_last_failure_is_told_without_what_may_quote_rows() {
        let last = LastInsertError::default();
        assert_eq!(last.state(), None);
        for (class, code, message) in [
            (Class::Halt, Some(516), Some("Authentication failed")),
            (Class::InDoubt, None, Some("the connection was closed")),
            (Class::InDoubt, Some(1002), None),
            (Class::RefreshSchema, Some(53), None),
        ] {
            last.note(&error(class, code, message.unwrap_or("value 'secret'")));
            let expected = InsertErrorState {
                class: class.label().into(),
                code,
                message: message.map(str::to_owned),
                endpoint: Some("http://clickhouse:8123".into()),
                table: Some("`otel`.`otel_traces`".into()),
            };
            assert_eq!(last.state(), Some(expected.clone()));
            last.note(&error(Class::Poison, Some(6), "cannot parse 'secret'"));
            assert_eq!(last.state(), Some(expected), "it lies in the rows");
        }
        // ClickHouse names the table last.
        let columns = "Timestamp, ".repeat(99);
        last.note(&error(
            Class::Halt,
            Some(497),
            &format!("Not enough privileges: INSERT({columns}) ON d.t"),
        ));
        let message = last.state().unwrap().message.unwrap();
        assert!(message.starts_with("Not enough") && message.ends_with(") ON d.t"), "{message}");
        last.note(&error(Class::Retry, None, &"ä".repeat(9_000)));
        assert_eq!(last.state().unwrap().message.unwrap().chars().count(), INSERT_ERROR_CHARS_MAX);
    }
}
