//! What each tenant may send: spans and bytes a second.
//!
//! A tenant has a bucket for spans and one for bytes. A request is taken while both have something in them, and takes what it has, also
//! below zero: so a request that is larger than a bucket is taken now and then, and the rate holds on average. A bucket holds what may be
//! sent in [`BURST`]. A request that is not taken in the end, because this process lacks something, gets back what it took: the client sends it again.
//!
//! Owner: the process, behind one lock ([`SharedTenants`]) that a request takes a few times. Time is an argument. Limits: [`TENANTS_MAX`]; above it the
//! tenant that has sent nothing for the longest time is forgotten, and starts with full buckets again.

use crate::ground::measure::Measure;
use sluice_gateway_config::{ByteSize, Tenants as TenantTerms};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Tenants whose limits are kept. Chosen: about 2 MiB with long names.
const TENANTS_MAX: usize = 4_096;

/// How long a tenant that was quiet may send above its rate, at twice that rate. Chosen: clients send batches every few seconds.
pub const BURST: Duration = Duration::from_secs(5);

/// The longest wait that is asked of a client. Chosen: clients give up on longer ones.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Nanoseconds of a tenth of a second. A wait is a whole number of tenths, rounded up: the text of the answer has one decimal, and would say
/// 0.0 s of a shorter wait.
const WAIT_STEP_NANOS: u64 = 100_000_000;

/// What a tenant may send a second; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantRates {
    pub spans: Option<u64>,
    pub bytes: Option<u64>,
}

impl TenantRates {
    /// Those of a config.
    pub fn of(terms: Option<&TenantTerms>) -> Self {
        terms.map_or_else(Self::default, |terms| Self {
            spans: terms.spans_per_second,
            bytes: terms.bytes_per_second.map(ByteSize::get),
        })
    }
}

/// A tenant has sent too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverLimit {
    pub tenant: String,
    pub measure: Measure,
    /// The limit.
    pub per_second: u64,
    /// When to send again: whole tenths of a second, at least one, at most [`WAIT_MAX`].
    pub after: Duration,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, measure, per_second, after } = self;
        let of = if tenant.is_empty() {
            "requests without a tenant".to_owned()
        } else {
            format!("tenant {tenant:?}")
        };
        write!(
            f,
            "{of}: more than the limit of {per_second} {} a second; send again in {:.1} s",
            measure.label(),
            after.as_secs_f64()
        )
    }
}

/// How much of a rate is left, in spans or bytes times [`SCALE`].
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: i128,
    at: Instant,
}

/// A second in nanoseconds: buckets count in billionths of a span or byte, so that nothing is lost by rounding.
const SCALE: i128 = 1_000_000_000;

impl Bucket {
    fn full(rate: u64, now: Instant) -> Self {
        Self { left: capacity(rate), at: now }
    }

    fn fill(&mut self, rate: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.at = self.at.max(now);
        let more = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX).saturating_mul(i128::from(rate));
        self.left = self.left.saturating_add(more).min(capacity(rate));
    }

    fn take(&mut self, count: u64) {
        self.left = self.left.saturating_sub(i128::from(count).saturating_mul(SCALE));
    }

    fn give_back(&mut self, count: u64, rate: u64) {
        let more = i128::from(count).saturating_mul(SCALE);
        self.left = self.left.saturating_add(more).min(capacity(rate));
    }

    /// How long until something is in it, in whole tenths of a second.
    fn wait(&self, rate: u64) -> Option<Duration> {
        if self.left > 0 {
            return None;
        }
        let nanos =
            self.left.saturating_neg().checked_div(i128::from(rate)).unwrap_or(i128::MAX).saturating_add(1);
        let in_tenths = |nanos: u64| nanos.div_ceil(WAIT_STEP_NANOS).saturating_mul(WAIT_STEP_NANOS);
        let wait = u64::try_from(nanos).map_or(WAIT_MAX, |nanos| Duration::from_nanos(in_tenths(nanos)));
        Some(wait.min(WAIT_MAX))
    }
}

fn capacity(rate: u64) -> i128 {
    i128::from(rate).saturating_mul(SCALE).saturating_mul(i128::from(BURST.as_secs()))
}

/// A tenant's buckets, and its place in the order of last requests.
#[derive(Debug)]
struct Tenant {
    spans: Option<Bucket>,
    bytes: Option<Bucket>,
    last: u64,
}

/// The tenants of a process: tasks and threads share them.
#[derive(Debug)]
pub struct SharedTenants(Mutex<Tenants>);

impl SharedTenants {
    /// No tenants yet.
    pub fn new(rates: TenantRates) -> Self {
        Self(Mutex::new(Tenants::new(rates, TENANTS_MAX)))
    }

    fn lock(&self) -> MutexGuard<'_, Tenants> {
        // Plain values are whole even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request of this many bytes, or says why not. Its spans are not known yet.
    ///
    /// # Errors
    /// [`OverLimit`] if the tenant has sent too many spans or bytes.
    pub fn admit(&self, name: &str, bytes: u64, now: Instant) -> Result<(), OverLimit> {
        self.lock().admit(name, bytes, now)
    }

    /// Counts the spans of a request that was taken.
    pub fn count_spans(&self, name: &str, spans: u64) {
        self.lock().count_spans(name, spans);
    }

    /// Gives back what a request took that is not stored, although its tenant was within its limits: its bytes, and its spans if they were
    /// counted.
    pub fn give_back(&self, name: &str, bytes: u64, spans: u64) {
        self.lock().give_back(name, bytes, spans);
    }

    /// How many tenants are known.
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

/// The tenants that have sent lately.
#[derive(Debug)]
pub struct Tenants {
    rates: TenantRates,
    count_max: usize,
    by_name: HashMap<Arc<str>, Tenant>,
    /// Tenants by their last request.
    order: BTreeMap<u64, Arc<str>>,
    /// Requests so far.
    requests: u64,
}

impl Tenants {
    /// No tenants yet. `count_max` is at least 1.
    pub fn new(rates: TenantRates, count_max: usize) -> Self {
        let (by_name, order) = (HashMap::new(), BTreeMap::new());
        Self { rates, count_max: count_max.max(1), by_name, order, requests: 0 }
    }

    /// Takes a request of this many bytes, or says why not. Its spans are not known yet.
    ///
    /// # Errors
    /// [`OverLimit`] if the tenant has sent too many spans or bytes.
    pub fn admit(&mut self, name: &str, bytes: u64, now: Instant) -> Result<(), OverLimit> {
        let rates = self.rates;
        if rates == TenantRates::default() {
            return Ok(());
        }
        let tenant = self.touch(name, now);
        let over = |bucket: &mut Option<Bucket>, rate: Option<u64>, measure| {
            let (bucket, per_second) = (bucket.as_mut()?, rate?);
            bucket.fill(per_second, now);
            let after = bucket.wait(per_second)?;
            Some(OverLimit { tenant: name.to_owned(), measure, per_second, after })
        };
        let spans = over(&mut tenant.spans, rates.spans, Measure::Spans);
        let of_bytes = over(&mut tenant.bytes, rates.bytes, Measure::Bytes);
        // The longer wait is the one that helps.
        if let Some(over) = spans.into_iter().chain(of_bytes).max_by_key(|over| over.after) {
            return Err(over);
        }
        if let Some(bucket) = &mut tenant.bytes {
            bucket.take(bytes);
        }
        Ok(())
    }

    /// Counts the spans of a request that was taken.
    pub fn count_spans(&mut self, name: &str, spans: u64) {
        if let Some(bucket) = self.by_name.get_mut(name).and_then(|tenant| tenant.spans.as_mut()) {
            bucket.take(spans);
        }
    }

    /// Gives back what a request took.
    pub fn give_back(&mut self, name: &str, bytes: u64, spans: u64) {
        let rates = self.rates;
        let Some(tenant) = self.by_name.get_mut(name) else { return };
        let buckets = [(&mut tenant.bytes, rates.bytes, bytes), (&mut tenant.spans, rates.spans, spans)];
        for (bucket, rate, count) in buckets {
            if let (Some(bucket), Some(rate)) = (bucket, rate) {
                bucket.give_back(count, rate);
            }
        }
    }

    /// How many tenants are known.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether no tenant is known.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The tenant, who is the last in the order now.
    fn touch(&mut self, name: &str, now: Instant) -> &mut Tenant {
        let Self { rates, count_max, by_name, order, requests } = self;
        *requests += 1;
        let last = *requests;
        let known = by_name.get(name).and_then(|tenant| order.remove(&tenant.last));
        if known.is_none()
            && by_name.len() >= *count_max
            && let Some((_, oldest)) = order.pop_first()
        {
            by_name.remove(&oldest);
        }
        let name = known.unwrap_or_else(|| Arc::from(name));
        order.insert(last, name.clone());
        let full = |rate: Option<u64>| rate.map(|rate| Bucket::full(rate, now));
        let tenant = by_name.entry(name).or_insert_with(|| Tenant {
            spans: full(rates.spans),
            bytes: full(rates.bytes),
            last,
        });
        tenant.last = last;
        tenant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATES: TenantRates = TenantRates { spans: Some(100), bytes: Some(1_000) };

    fn after(begin: Instant, millis: u64) -> Instant {
        begin + Duration::from_millis(millis)
    }

    #[test]
    fn an_answer_names_the_limit_of_a_tenant_and_the_time_and_others_pass() {
        let begin = Instant::now();
        let mut tenants = Tenants::new(RATES, 10);
        assert_eq!(tenants.admit("a", 5_150, begin), Ok(()), "larger than the bucket");
        let over = tenants.admit("a", 1, begin).unwrap_err();
        assert_eq!((over.measure, over.per_second), (Measure::Bytes, 1_000));
        assert_eq!(
            over.to_string(),
            "tenant \"a\": more than the limit of 1000 bytes a second; send again in 0.2 s"
        );
        assert_eq!(tenants.admit("b", 1, begin), Ok(()));
        assert!(tenants.admit("a", 1, after(begin, 149)).is_err());
        assert_eq!(tenants.admit("a", 1, after(begin, 152)), Ok(()));
        tenants.count_spans("b", 1_995);
        let over = tenants.admit("b", 1, begin).unwrap_err();
        assert_eq!((over.measure, over.after.as_millis()), (Measure::Spans, 15_000));
        tenants.count_spans("unknown", 1);
        let none = OverLimit { tenant: String::new(), ..over };
        assert!(none.to_string().starts_with("requests without a tenant: more than"), "{none}");
    }

    #[test]
    fn a_wait_is_rounded_up_to_a_tenth_of_a_second_and_never_zero() {
        let begin = Instant::now();
        let rates = TenantRates { spans: None, bytes: Some(1_000_000) };
        for (bytes, millis, words) in [
            (5_000_000, 100, "0.1 s"),
            (5_000_001, 100, "0.1 s"),
            (5_099_999, 100, "0.1 s"),
            (5_100_000, 200, "0.2 s"),
            (1 << 40, 60_000, "60.0 s"),
        ] {
            let mut tenants = Tenants::new(rates, 10);
            assert_eq!(tenants.admit("a", bytes, begin), Ok(()));
            let over = tenants.admit("a", 1, begin).unwrap_err();
            assert_eq!(over.after, Duration::from_millis(millis), "{bytes}");
            assert!(over.to_string().ends_with(&format!("; send again in {words}")), "{over}");
        }
    }

    #[test]
    fn a_request_that_is_not_stored_costs_its_tenant_nothing() {
        let begin = Instant::now();
        let mut tenants = Tenants::new(RATES, 10);
        for _ in 0..5 {
            assert_eq!(tenants.admit("a", 100_000, begin), Ok(()));
            tenants.count_spans("a", 10_000);
            tenants.give_back("a", 100_000, 10_000);
        }
        tenants.give_back("a", u64::MAX, u64::MAX);
        tenants.give_back("unknown", 1, 1);
        assert_eq!(tenants.admit("a", 5_000, begin), Ok(()));
        let over = tenants.admit("a", 1, begin).unwrap_err();
        assert_eq!(over.measure, Measure::Bytes, "no more than a full bucket is given back");
    }

    #[test]
    fn without_limits_nothing_is_kept() {
        let mut tenants = Tenants::new(TenantRates::default(), 10);
        assert_eq!(tenants.admit("a", u64::MAX, Instant::now()), Ok(()));
        assert!(tenants.is_empty());
    }

    #[test]
    fn the_tenant_that_was_quiet_the_longest_is_forgotten() {
        let begin = Instant::now();
        let mut tenants = Tenants::new(RATES, 2);
        for name in ["a", "b", "a", "c"] {
            tenants.admit(name, 3_000, begin).unwrap();
        }
        assert_eq!(tenants.len(), 2);
        assert!(tenants.admit("a", 1, begin).is_err(), "it was remembered");
        assert_eq!(tenants.admit("b", 1, begin), Ok(()), "it begins again");
    }

    proptest! {
        #[test]
        fn over_time_a_tenant_gets_its_rate_and_a_burst(
            steps in prop::collection::vec((0_u64..2_000, 1_u64..3_000), 1..200)
        ) {
            let begin = Instant::now();
            let mut tenants = Tenants::new(TenantRates { spans: None, bytes: Some(1_000) }, 4);
            let (mut now, mut taken, mut last) = (0, 0, 0);
            for (millis, bytes) in steps {
                now += millis;
                match tenants.admit("a", bytes, after(begin, now)) {
                    Ok(()) => (taken, last) = (taken + bytes, bytes),
                    Err(over) => {
                        let then = after(begin, now) + over.after;
                        prop_assert!(tenants.admit("a", 0, then).is_ok() || over.after == WAIT_MAX);
                        now += u64::try_from(over.after.as_millis()).unwrap() + 1;
                    }
                }
            }
            // Rate, burst, and the request that went below zero.
            prop_assert!(taken <= now + BURST.as_secs() * 1_000 + last.max(3_000), "{} in {} ms", taken, now);
        }
    }
}
