//! Which of several operators looks after a pipeline.
//!
//! Operators with disjoint label selectors divide the pipelines of a cluster. An operator with a selector signs each of its pipelines with an
//! annotation before it does anything else. Once the pipeline has another label, it removes the signature as its last write. Until then the
//! operator of the new label waits. So no two operators with selectors write for one pipeline, as long as no watch is more than 90 s late:
//!
//! ```text
//!  label a -> b     operator a: ends the reconcile that runs, removes its signature      then writes nothing
//!                   operator b: waits .................................................. signs, reconciles
//! ```
//!
//! An operator without a selector looks after all pipelines and signs none, as before there were selectors.

use crate::{
    ground::selector::Selector,
    names::{OPERATOR_SELECTOR, SIGNATURE},
};
use std::collections::BTreeMap;

/// An operator that has not removed its signature for this many seconds, from a pipeline that it no longer selects, is taken for one that is
/// gone. Chosen: half as long again as the longest reconcile, which is 60 s.
const HANDOVER_SECONDS: f64 = 90.0;

/// An operator among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Responsible {
    /// Namespace and name of its Lease, with a slash between: the same for all of its replicas.
    pub name: String,
    /// Labels of its pipelines; `None` for all pipelines.
    pub selector: Option<Selector>,
}

/// What an operator does about a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Looks after it.
    Ours,
    /// Signs it, and then looks after it.
    Sign,
    /// Removes a signature.
    Unsign,
    /// Leaves it to another operator.
    Theirs,
    /// Waits for the operator that signed it.
    Waits(Wait),
}

/// What an operator waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The other one no longer selects the pipeline, and is to remove its signature.
    Handover {
        /// Its name.
        operator: String,
    },
    /// The other one selects the pipeline, too.
    Overlap {
        /// Its name.
        operator: String,
        /// Its selector.
        selector: String,
    },
}

impl Responsible {
    /// What to do about a pipeline with these labels and annotations, if the operator has waited for its signer for this long.
    pub fn turn(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        waited_seconds: f64,
    ) -> Turn {
        let selects = self.selector.as_ref().is_none_or(|selector| selector.matches(labels));
        let signed_with = annotations.get(OPERATOR_SELECTOR).map_or("", String::as_str);
        match (annotations.get(SIGNATURE), selects) {
            (None, true) => self.sign(),
            (Some(signer), true) if *signer == self.name => match &self.selector {
                Some(selector) if selector.to_string() == signed_with => Turn::Ours,
                Some(_) => Turn::Sign,
                None => Turn::Unsign,
            },
            (Some(signer), false) if *signer == self.name => Turn::Unsign,
            (_, false) => Turn::Theirs,
            (Some(signer), true) => {
                let operator = signer.clone();
                // A selector that cannot be read selects no pipeline.
                let theirs = signed_with.parse::<Selector>();
                if theirs.is_ok_and(|theirs| theirs.matches(labels)) {
                    return Turn::Waits(Wait::Overlap { operator, selector: signed_with.to_owned() });
                }
                if waited_seconds < HANDOVER_SECONDS {
                    return Turn::Waits(Wait::Handover { operator });
                }
                match self.selector {
                    Some(_) => Turn::Sign,
                    None => Turn::Unsign,
                }
            }
        }
    }

    fn sign(&self) -> Turn {
        if self.selector.is_some() { Turn::Sign } else { Turn::Ours }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operator(name: &str, selector: &str) -> Responsible {
        Responsible { name: format!("system/{name}"), selector: selector.parse().ok() }
    }

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn signed(by: &Responsible) -> BTreeMap<String, String> {
        let selector = by.selector.as_ref().map(ToString::to_string).unwrap_or_default();
        pairs(&[(SIGNATURE, &by.name), (OPERATOR_SELECTOR, &selector)])
    }

    #[test]
    fn each_case_has_one_operator_that_acts() {
        let (a, b, all) = (operator("a", "team=a"), operator("b", "team=b"), operator("all", ""));
        let wider = operator("a", "team in (a, c)");
        let (of_a, of_b) = (pairs(&[("team", "a")]), pairs(&[("team", "b")]));
        let nobody = BTreeMap::new();
        let leaving = || Turn::Waits(Wait::Handover { operator: a.name.clone() });
        for (us, labels, annotations, waited, expected) in [
            (&all, &of_a, &nobody, 0.0, Turn::Ours),
            (&a, &of_a, &nobody, 0.0, Turn::Sign),
            (&a, &of_b, &nobody, 0.0, Turn::Theirs),
            (&a, &of_a, &signed(&a), 0.0, Turn::Ours),
            (&wider, &of_a, &signed(&a), 0.0, Turn::Sign),
            (&a, &of_b, &signed(&a), 0.0, Turn::Unsign),
            (&a, &of_b, &signed(&b), 0.0, Turn::Theirs),
            (&b, &of_b, &signed(&a), 0.0, leaving()),
            (&b, &of_b, &signed(&a), HANDOVER_SECONDS, Turn::Sign),
            (&all, &of_b, &signed(&a), 0.0, leaving()),
            (&all, &of_b, &signed(&a), HANDOVER_SECONDS, Turn::Unsign),
            (&operator("a", ""), &of_a, &signed(&a), 0.0, Turn::Unsign),
        ] {
            assert_eq!(us.turn(labels, annotations, waited), expected, "{us:?} {labels:?} {annotations:?}");
        }
    }

    #[test]
    fn selectors_that_overlap_leave_the_pipeline_to_the_operator_that_signed_it() {
        let (a, both) = (operator("a", "team=a"), operator("b", "team in (a, b)"));
        let labels = pairs(&[("team", "a")]);
        let overlap = Turn::Waits(Wait::Overlap { operator: a.name.clone(), selector: "team=a".into() });
        for waited in [0.0, HANDOVER_SECONDS, 1e9] {
            assert_eq!(both.turn(&labels, &signed(&a), waited), overlap);
            assert_eq!(operator("all", "").turn(&labels, &signed(&a), waited), overlap);
        }
    }

    proptest! {
        /// Whatever two operators with selectors do in turn while the label changes, no two of them look after the pipeline at once, and
        /// one of them does in the end.
        #[test]
        fn no_two_operators_look_after_one_pipeline(steps in prop::collection::vec((0..2_usize, prop::option::of(0..2_usize)), 1..40)) {
            let operators = [operator("a", "team=a"), operator("b", "team=b")];
            let teams = ["a", "b"];
            let (mut labels, mut annotations) = (pairs(&[("team", "a")]), BTreeMap::new());
            let act = |at: usize, labels: &BTreeMap<String, String>, annotations: &mut BTreeMap<String, String>| {
                match operators[at].turn(labels, annotations, 0.0) {
                    Turn::Sign => *annotations = signed(&operators[at]),
                    Turn::Unsign => annotations.clear(),
                    Turn::Ours | Turn::Theirs | Turn::Waits(_) => {}
                }
            };
            for (at, team) in steps {
                if let Some(team) = team {
                    labels = pairs(&[("team", teams[team])]);
                }
                act(at, &labels, &mut annotations);
                let ours = operators.iter().filter(|one| one.turn(&labels, &annotations, 0.0) == Turn::Ours);
                prop_assert!(ours.count() <= 1);
            }
            for at in [0, 1, 0, 1] {
                act(at, &labels, &mut annotations);
            }
            let ours = operators.iter().filter(|one| one.turn(&labels, &annotations, 0.0) == Turn::Ours);
            prop_assert_eq!(ours.count(), 1);
        }
    }
}
