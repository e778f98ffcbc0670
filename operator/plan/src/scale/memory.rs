//! A model of a gateway's memory: a base, and a part for each partition it reads. It is learned from pods with different numbers of
//! partitions, by least squares over decaying sums. While all pods have the same number of partitions, the part stays what it was, and
//! the base follows from their usage.

use super::{numbers, sample::PodSample};
use serde::{Deserialize, Serialize};

/// Decay of a sum at each sample: half is forgotten after about an hour of samples every 15 s.
const KEEP: f64 = 0.997;
/// Sums are of MiB: bytes would leave no digits behind the point.
const MIB: f64 = 1_048_576.0;
/// Below this variance of the number of partitions, pods do not tell base from part. One tenth of a partition.
const VARIANCE_MIN: f64 = 0.01;

/// Fading sums, and what they last told; bounded whatever the number of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryModel {
    weight: f64,
    partitions: f64,
    mib: f64,
    partitions_squared: f64,
    partitions_mib: f64,
    /// MiB of a partition, when pods last told it.
    part_mib: Option<f64>,
}

impl MemoryModel {
    /// Adds pods, each with one share of the weight of the sample.
    #[must_use]
    pub fn learn(mut self, pods: &[PodSample]) -> Self {
        for sum in self.sums() {
            *sum *= KEEP;
        }
        let weight = 1.0 / numbers::count(pods.len().max(1) as u64);
        for pod in pods.iter().filter(|pod| pod.memory_bytes > 0 && !pod.partitions.is_empty()) {
            let partitions = numbers::count(pod.partitions.len() as u64);
            let mib = numbers::count(pod.memory_bytes) / MIB;
            self.weight += weight;
            self.partitions += weight * partitions;
            self.mib += weight * mib;
            self.partitions_squared += weight * partitions * partitions;
            self.partitions_mib += weight * partitions * mib;
        }
        for sum in self.sums() {
            *sum = numbers::written(*sum);
        }
        self.part_mib = self.part().map(numbers::written).or(self.part_mib);
        self
    }

    fn sums(&mut self) -> [&mut f64; 5] {
        let Self { weight, partitions, mib, partitions_squared, partitions_mib, part_mib: _ } = self;
        [weight, partitions, mib, partitions_squared, partitions_mib]
    }

    /// MiB of a partition; `None` while pods do not tell it. No pod takes less for having more of them.
    fn part(&self) -> Option<f64> {
        let (mean, mib) = self.means()?;
        let variance = self.partitions_squared / self.weight - mean * mean;
        let part = || (self.partitions_mib / self.weight - mean * mib) / variance;
        (variance >= VARIANCE_MIN).then(|| part().max(0.0))
    }

    /// Partitions and MiB of a pod; `None` before one was seen.
    fn means(&self) -> Option<(f64, f64)> {
        (self.weight > 0.0).then(|| (self.partitions / self.weight, self.mib / self.weight))
    }

    /// Bytes of a gateway with so many partitions; `None` before the parts can be told.
    pub fn expected(&self, partitions: u32) -> Option<f64> {
        let (mean, mib) = self.means()?;
        // The former part is limited to what leaves a base of at least 0.
        let told_before = || self.part_mib.map(|part| part.min(mib / mean));
        let part = self.part().or_else(told_before)?;
        Some((mib + part * (f64::from(partitions) - mean)).max(0.0) * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(partitions: u32, bytes: u64) -> PodSample {
        PodSample { memory_bytes: bytes << 20, partitions: (0..partitions).collect(), ..PodSample::default() }
    }

    #[test]
    fn base_and_part_are_told_from_pods_with_different_numbers_of_partitions() {
        let alike = MemoryModel::default().learn(&[pod(4, 140), pod(4, 140)]);
        assert_eq!(alike.expected(8), None);
        let different = alike.learn(&[pod(2, 120), pod(8, 180)]);
        for (partitions, bytes) in [(1, 110.0), (24, 340.0)] {
            assert!((different.expected(partitions).unwrap() / MIB - bytes).abs() < 0.1, "{partitions}");
        }
    }

    #[test]
    fn more_partitions_never_take_less() {
        let model = MemoryModel::default().learn(&[pod(2, 200), pod(8, 100)]);
        assert!(model.expected(24).unwrap() >= model.expected(1).unwrap());
    }

    #[test]
    fn what_a_partition_takes_is_known_as_long_as_nothing_contradicts_it() {
        let learned = MemoryModel::default().learn(&[pod(4, 100), pod(5, 110)]);
        let a_day_of = |model: MemoryModel, mib| {
            (0..5_760).fold(model, |model, _| model.learn(&[pod(8, mib), pod(8, mib)]))
        };
        let alike = a_day_of(learned, 140);
        // Then all of them take more, which is no partition's, or less than a base and eight parts would be.
        for (model, bytes) in [(alike, 180.0), (a_day_of(alike, 150), 190.0), (a_day_of(alike, 40), 60.0)] {
            let expected = model.expected(12).expect("it is not forgotten") / MIB;
            assert!((expected - bytes).abs() < 1.0, "{expected}, not {bytes}");
        }
        let contradicted = (0..5_760).fold(learned, |model, _| model.learn(&[pod(4, 100), pod(8, 200)]));
        assert!((contradicted.expected(12).unwrap() / MIB - 300.0).abs() < 1.0, "25 MiB and no base");
    }
}
