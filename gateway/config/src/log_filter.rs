//! The log filter: a level, or levels by part of the program, in the syntax of `tracing`.
//!
//! The filter of gateway and operator takes an unknown level for the name of a part of the program, and then logs nothing from all
//! others. So `warning` instead of `warn` would silence it; here it is refused. The filter accepts everything that passes here.

use crate::violation::Violations;

/// The levels, the quietest first.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Adds what is wrong with a filter; `at` is its path.
pub fn check(filter: &str, at: &str, found: &mut Violations) {
    if filter.is_empty() {
        found.add(at, "must not be empty");
    }
    for part in filter.split(',').filter(|_| !filter.is_empty()) {
        let (target, level) =
            part.rsplit_once('=').map_or((None, part), |(target, level)| (Some(target), level));
        found.add_if(!is_level(level), at, || {
            format!("{level:?} is not a level: one of {}", LEVELS.join(", "))
        });
        found.add_if(target.is_some_and(|target| !is_target(target)), at, || {
            format!("{part:?} is not target=level, such as sluice_kafka=debug")
        });
    }
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
}

/// Whether the text is the name of a crate or of a module in it.
fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(filter: &str) -> Vec<String> {
        let mut found = Violations::default();
        check(filter, "log.level", &mut found);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn levels_pass_alone_and_by_target() {
        for filter in
            ["info", "WARN", "off", "warn,sluice_kafka=debug", "sluice_gateway::reading=trace,error"]
        {
            assert_eq!(violations(filter), [""; 0], "{filter}");
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_with_those_there_are() {
        for filter in ["warning", "sluice=loud", "info,verbose", "sluice_kafka", "info,", " info"] {
            let found = violations(filter);
            assert!(
                found.len() == 1 && found[0].contains("one of off, error, warn, info"),
                "{filter}: {found:?}"
            );
        }
        assert_eq!(violations("=info").len(), 1);
        assert_eq!(violations("a b=info").len(), 1);
        assert_eq!(violations(""), ["log.level: must not be empty"]);
    }
}
