//! Whether this operator looks after a pipeline, where several divide them by labels: `sluice_plan`'s decision, and since when it waits for
//! another operator. What it waits for is in memory alone: after a restart it waits for the whole time again.

use super::memory::Key;
use kube::api::ObjectMeta;
use sluice_plan::{Moment, OperatorWait, Responsible, Turn, names::SIGNATURE};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// This operator among others. One entry for each pipeline that waits for another operator; removed when it is signed by no other one any
/// more, or is gone.
#[derive(Debug)]
pub struct Responsibility {
    /// This operator.
    pub who: Responsible,
    waits: Mutex<HashMap<Key, (OperatorWait, Moment)>>,
}

impl Responsibility {
    /// Of this operator, which waits for no other one yet.
    pub fn of(who: Responsible) -> Self {
        Self { who, waits: Mutex::default() }
    }

    /// What to do about a pipeline, and whether what it waits for is news.
    pub fn turn(&self, key: &Key, pipeline: &ObjectMeta, now: Moment) -> (Turn, bool) {
        let none = BTreeMap::new();
        let labels = pipeline.labels.as_ref().unwrap_or(&none);
        let annotations = pipeline.annotations.as_ref().unwrap_or(&none);
        let signer = annotations.get(SIGNATURE);
        let mut waits = self.waits();
        let waited_seconds = match waits.get(key) {
            Some((OperatorWait::Handover { operator }, since)) if Some(operator) == signer => {
                now.seconds_since(*since)
            }
            _ => 0.0,
        };
        let turn = self.who.turn(labels, annotations, waited_seconds);
        let Turn::Waits(wait) = &turn else {
            // The API server may refuse what follows from the wait: then the wait does not begin anew.
            let has_waited = matches!(turn, Turn::Sign | Turn::Unsign) && waited_seconds > 0.0;
            if !has_waited {
                waits.remove(key);
            }
            return (turn, false);
        };
        let is_news = waits.get(key).is_none_or(|(known, _)| known != wait);
        if is_news {
            waits.insert(key.clone(), (wait.clone(), now));
        }
        (turn, is_news)
    }

    /// A pipeline is gone.
    pub fn forget(&self, key: &Key) {
        self.waits().remove(key);
    }

    fn waits(&self) -> MutexGuard<'_, HashMap<Key, (OperatorWait, Moment)>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_plan::names::OPERATOR_SELECTOR;

    #[test]
    fn an_operator_waits_for_each_signer_from_when_it_no_longer_selects() {
        let who = Responsible { name: "system/b".into(), selector: "team=b".parse().ok() };
        let responsibility = Responsibility::of(who);
        let key = Key { namespace: "n".into(), name: "p".into() };
        let pipeline = |signer: &str, selector: &str| ObjectMeta {
            labels: Some([("team".to_owned(), "b".to_owned())].into()),
            annotations: Some(
                [
                    (SIGNATURE.to_owned(), signer.to_owned()),
                    (OPERATOR_SELECTOR.to_owned(), selector.to_owned()),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        };
        let turn = |pipeline: &ObjectMeta, seconds| {
            responsibility.turn(&key, pipeline, Moment(0).plus_seconds(seconds))
        };
        let leaving = pipeline("system/a", "team=a");
        assert!(matches!(turn(&leaving, 0), (Turn::Waits(_), true)));
        assert!(matches!(turn(&leaving, 89), (Turn::Waits(_), false)));
        // Selected by the other one again in between: the time begins anew.
        let overlaps = pipeline("system/a", "team in (a, b)");
        assert!(matches!(turn(&overlaps, 90), (Turn::Waits(OperatorWait::Overlap { .. }), true)));
        assert!(matches!(turn(&leaving, 91), (Turn::Waits(_), true)));
        // So does it with another signer.
        let another = pipeline("system/c", "team=c");
        assert!(matches!(turn(&another, 180), (Turn::Waits(_), true)));
        assert_eq!(turn(&another, 270), (Turn::Sign, false));
        // The API server refused the signature.
        assert_eq!(turn(&another, 272), (Turn::Sign, false));
        // It was written: what this operator waits for later is another wait.
        assert_eq!(turn(&pipeline("system/b", "team=b"), 274), (Turn::Ours, false));
        assert!(matches!(turn(&another, 276), (Turn::Waits(_), true)));
    }
}
