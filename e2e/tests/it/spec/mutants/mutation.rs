//! Mutations of an object: their kind and place follow from a seed.

use e2e_fixtures::spans::Dice;
use serde_json::{Map, Value, json};

/// Most mutations of one mutant; at least one. With more, the API server would reject almost all, and its schema is not what is tested.
const MUTATIONS_MAX: u64 = 2;

/// A text that is longer than every bound, characters.
const HUGE_CHARACTERS: usize = 100_000;

/// A list that is longer than every bound.
const HUGE_ITEMS: usize = 2_000;

/// Texts in other scripts, with other directions, without width, or with a special meaning for a program.
const TEXTS: [&str; 14] = [
    "",
    " ",
    "ünïcödé",
    "日本語",
    "\u{202e}gnirts",
    "\u{0}",
    "\u{1f980}\u{200d}\u{1f525}",
    "a\nb: c",
    "../../etc/passwd",
    "{{ .Values.secret }}",
    "$(rm -rf /)",
    "'; DROP TABLE otel_traces; --",
    "-1",
    "NaN",
];

/// Numbers at the limits, and beyond.
const NUMBERS: [i64; 10] = [0, 1, 2, 3, 64, 65, 1_000, 100_000, 2_147_483_647, -1];

/// Characters of a value that the description shows.
const TOLD_CHARACTERS: usize = 40;

pub struct Mutations {
    dice: Dice,
}

impl Mutations {
    pub fn new(seed: u64, number: u64) -> Mutations {
        Mutations { dice: Dice::new(seed, number) }
    }

    /// The object with one or two mutations of its spec, and their description.
    pub fn mutated(&mut self, original: &Value) -> (Value, String) {
        let mut object = original.clone();
        let count = 1 + self.dice.below(MUTATIONS_MAX);
        let words: Vec<String> = (0..count).map(|_| self.mutate(&mut object)).collect();
        (object, words.join("; "))
    }

    fn mutate(&mut self, object: &mut Value) -> String {
        let mut pointers = Vec::new();
        collect(&object["spec"], "/spec", &mut pointers);
        pointers.push("/metadata/name".to_owned());
        let at = pointers[self.dice.index(pointers.len())].clone();
        match self.dice.below(12) {
            0 | 1 => {
                remove(object, &at);
                format!("no {at}")
            }
            2 => {
                let other = pointers[self.dice.index(pointers.len())].clone();
                exchange(object, &at, &other);
                format!("{at} and {other} exchanged")
            }
            10 => {
                insert(object, &at, &format!("feld-ü{}", self.dice.below(10)));
                format!("a field too many in {at}")
            }
            kind => {
                let value = if kind < 10 { self.alike(object.pointer(&at)) } else { self.value() };
                let told: String = value.to_string().chars().take(TOLD_CHARACTERS).collect();
                put(object, &at, value);
                format!("{at} is {told}")
            }
        }
    }

    /// Another value of the same type, which a schema may accept.
    fn alike(&mut self, old: Option<&Value>) -> Value {
        match old {
            Some(Value::Number(_)) => json!(self.dice.pick(&NUMBERS)),
            Some(Value::String(text)) => json!(self.text_like(text)),
            Some(Value::Object(fields)) => {
                let kept = |_: &(&String, &Value)| self.dice.chance(500);
                let some = fields.iter().filter(kept).map(|(name, value)| (name.clone(), value.clone()));
                Value::Object(some.collect())
            }
            Some(Value::Array(items)) => {
                let twice = items.iter().rev().chain(items.iter().take(self.dice.index(2)));
                Value::Array(twice.cloned().collect())
            }
            _ => self.value(),
        }
    }

    fn text_like(&mut self, text: &str) -> String {
        match self.dice.below(8) {
            0 => text.to_uppercase(),
            1 => format!("{text}{text}"),
            2 => format!("{text}\n"),
            3 => text.chars().rev().collect(),
            4 => text.replace(|c: char| c.is_ascii_digit(), "9"),
            5 => text.chars().take(1).collect(),
            6 => text.replacen(|c: char| c.is_ascii_alphabetic(), "é", 1),
            _ => self.text().to_owned(),
        }
    }

    fn value(&mut self) -> Value {
        match self.dice.below(16) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(0),
            3 => json!(-1),
            4 => json!(i64::MAX),
            5 => json!(u64::MAX),
            6 => json!(-1.5e300),
            7 => json!("x".repeat(HUGE_CHARACTERS)),
            8 => json!(vec!["x:1"; HUGE_ITEMS]),
            9 => json!({}),
            10 => json!([]),
            11 => (0..64).fold(Value::Null, |inner, _| json!([inner])),
            12 => json!({"name": self.text(), "key": [1, {"a": null}]}),
            _ => json!(self.text()),
        }
    }

    fn text(&mut self) -> &'static str {
        self.dice.pick(&TEXTS)
    }
}

/// Pointers of everything below a value.
fn collect(value: &Value, at: &str, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                pointers.push(at.clone());
                collect(field, &at, pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let at = format!("{at}/{index}");
                pointers.push(at.clone());
                collect(item, &at, pointers);
            }
        }
        _ => {}
    }
}

fn remove(object: &mut Value, at: &str) {
    let (parent, name) = at.rsplit_once('/').expect("every pointer has a parent");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(name);
        }
        Some(Value::Array(items)) => {
            let index: usize = name.parse().expect("items are pointed at by number");
            items.remove(index);
        }
        _ => {}
    }
}

fn exchange(object: &mut Value, one: &str, other: &str) {
    let (Some(first), Some(second)) = (object.pointer(one).cloned(), object.pointer(other).cloned()) else {
        return;
    };
    put(object, one, second);
    put(object, other, first);
}

fn insert(object: &mut Value, at: &str, name: &str) {
    match object.pointer_mut(at) {
        Some(Value::Object(fields)) => {
            fields.insert(name.to_owned(), json!({"x": [1, null]}));
        }
        Some(Value::Array(items)) => items.push(Value::Object(Map::new())),
        Some(value) => *value = json!({name: 1}),
        None => {}
    }
}

fn put(object: &mut Value, at: &str, value: Value) {
    if let Some(place) = object.pointer_mut(at) {
        *place = value;
    }
}

#[test]
fn mutants_follow_from_the_seed_and_differ_from_the_original() {
    let original = json!({"metadata": {"name": "a"}, "spec": {"a": {"b": [1, "c"]}, "d/e": null}});
    let mutants: Vec<Value> = (0..50).map(|number| Mutations::new(1, number).mutated(&original).0).collect();
    let again: Vec<Value> = (0..50).map(|number| Mutations::new(1, number).mutated(&original).0).collect();
    assert_eq!(mutants, again);
    assert!(mutants.iter().filter(|mutant| **mutant != original).count() > 40);
}
