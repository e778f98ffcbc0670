//! Successive owners of one block that the server refuses, checked against a naive table.
//!
//! The world:
//!
//! - a server that knows tokens and refuses bad rows; some bad rows become good during the run;
//! - a coordinator that stores only the notes of the current owner;
//! - lost answers of inserts and commits;
//! - owners that die at any step and, if the table does not change, former owners that continue and whose inserts arrive late.
//!
//! In every schedule, each row is in the table once at the end, or is named as refused and not in the table. Each [`Mistake`] is the same
//! world with one rule broken, and must be detected.

use super::{
    tests::{Server, named, token},
    *,
};

/// Schedules of the tests that must find nothing.
const SCHEDULES: u64 = 3_000;

/// Schedules within which a mistake must be detected.
const SCHEDULES_MISTAKEN: u64 = 3_000;

/// Rules that owners break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// Windows of a level are sent before the level above is known to be noted.
    SendsBeforeItIsNoted,
    /// Notes are ignored: the block is sent whole.
    SendsWholeAgain,
    /// A window is sent again under another token.
    ForgetsTheToken,
}

/// Whether there may be two owners at a time, and whether the table is fixed. With both at once, duplicates are possible and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Zombies,
    Mending,
}

/// A number generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

struct Owner {
    generation: u64,
    /// None: the block is sent whole.
    bisection: Option<Bisection>,
}

struct World {
    random: Random,
    rows: u64,
    server: Server,
    owner_of_the_moment: u64,
    noted: Option<RefusedParts>,
    owners: Vec<Owner>,
    /// Inserts that arrive late.
    wire: Vec<Window>,
    weather: Weather,
    mistake: Option<Mistake>,
    sends: u64,
}

impl World {
    fn new(seed: u64, weather: Weather, mistake: Option<Mistake>) -> Self {
        let mut random = Random(seed);
        let rows = 1 + random.below(60);
        let bad: Vec<u64> = (0..=random.below(4)).map(|_| random.below(rows)).collect();
        let mut server = Server::with_bad(&bad);
        if random.below(3) == 0 {
            server.rows_max = 1 + random.below(rows);
        }
        let mut world = Self {
            random,
            rows,
            server,
            owner_of_the_moment: 0,
            noted: None,
            owners: Vec::new(),
            wire: Vec::new(),
            weather,
            mistake,
            sends: 0,
        };
        world.assign();
        world
    }

    fn assign(&mut self) {
        self.owner_of_the_moment += 1;
        let noted = self.noted.as_ref().filter(|_| self.mistake != Some(Mistake::SendsWholeAgain));
        let bisection = noted.map(|parts| Bisection::resume(token(), self.rows, parts).unwrap());
        self.owners.push(Owner { generation: self.owner_of_the_moment, bisection });
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 => {
                if self.weather == Weather::Mending || self.random.below(2) == 0 {
                    self.owners.clear();
                }
                self.assign();
            }
            1 if self.weather == Weather::Mending => {
                let mended = self.server.bad.pop_last();
                if mended.is_none() {
                    self.server.rows_max = u64::MAX;
                }
            }
            2 if !self.wire.is_empty() => {
                let window = self.wire.pop().unwrap();
                self.server.insert(&window);
            }
            _ => {
                let number = self.random.below(self.owners.len() as u64);
                self.act(usize::try_from(number).unwrap());
            }
        }
    }

    fn act(&mut self, number: usize) {
        let Some(bisection) = &self.owners[number].bisection else {
            let whole = Window { rows: 0..self.rows, token: token().to_string() };
            if let Outcome::Refused(refusal) = self.send(&whole) {
                self.owners[number].bisection = Some(Bisection::new(token(), self.rows, refusal));
            }
            return;
        };
        match bisection.step() {
            Step::Send(window) => {
                let outcome = self.send(&window);
                self.owners[number].bisection.as_mut().unwrap().take(outcome);
            }
            Step::Note(parts) => {
                let arrives =
                    self.random.below(8) > 0 && self.owners[number].generation == self.owner_of_the_moment;
                if arrives {
                    self.noted = Some(parts);
                }
                let is_told = arrives && self.random.below(4) > 0;
                if is_told || self.mistake == Some(Mistake::SendsBeforeItIsNoted) {
                    self.owners[number].bisection.as_mut().unwrap().noted();
                }
            }
            Step::Halt(_) => self.owners[number].bisection.as_mut().unwrap().renew(),
            Step::Done(_) => {}
        }
    }

    /// An insert, whose request or answer may be lost.
    fn send(&mut self, window: &Window) -> Outcome {
        self.sends += 1;
        let mut window = window.clone();
        if self.mistake == Some(Mistake::ForgetsTheToken) {
            window.token = format!("{}-{}", window.token, self.sends);
        }
        match self.random.below(10) {
            0 => Outcome::Unknown,
            1 if self.weather == Weather::Zombies => {
                self.wire.push(window);
                Outcome::Unknown
            }
            2 | 3 => {
                self.server.insert(&window);
                Outcome::Unknown
            }
            _ => self.server.insert(&window),
        }
    }

    /// The last owner finishes. `Err` describes what is wrong then.
    fn come_to_rest(&mut self) -> Result<(), String> {
        self.owners.clear();
        self.assign();
        for _ in 0..10_000 {
            self.act(0);
            while let Some(window) = self.wire.pop() {
                self.server.insert(&window);
            }
            let named = match &self.owners[0].bisection {
                Some(bisection) if matches!(bisection.step(), Step::Done(_)) => named(bisection.step()),
                None if self.server.rows.len() as u64 == self.rows => Vec::new(),
                _ => continue,
            };
            let wrong = (0..self.rows).find(|row| {
                let stored = self.server.rows.get(row).copied().unwrap_or(0);
                stored + u32::from(named.contains(row)) != 1
            });
            return wrong
                .map_or(Ok(()), |row| Err(format!("row {row}: {:?}, named {named:?}", self.server.rows)));
        }
        Err("no end".to_owned())
    }
}

fn schedule(seed: u64, weather: Weather, mistake: Option<Mistake>) -> Result<(), String> {
    let mut world = World::new(seed, weather, mistake);
    let steps = world.random.below(200);
    (0..steps).for_each(|_| world.step());
    world.come_to_rest()
}

#[test]
fn every_row_is_stored_once_or_named_whatever_the_schedule() {
    for weather in [Weather::Zombies, Weather::Mending] {
        for seed in 0..SCHEDULES {
            let outcome = schedule(seed, weather, None);
            assert!(outcome.is_ok(), "{weather:?}, seed {seed}: {outcome:?}");
        }
    }
}

#[test]
fn every_mistake_is_noticed() {
    for (mistake, weather) in [
        (Mistake::SendsBeforeItIsNoted, Weather::Mending),
        (Mistake::SendsWholeAgain, Weather::Mending),
        (Mistake::ForgetsTheToken, Weather::Zombies),
    ] {
        let found = (0..SCHEDULES_MISTAKEN).find(|seed| schedule(*seed, weather, Some(mistake)).is_err());
        assert!(found.is_some(), "nothing notices that an owner {mistake:?}");
    }
}
