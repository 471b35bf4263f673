//! Faults in a storm: twelve axes, and rows that cover each pair of their levels.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use netsim::{Chance, Jitter, LinkConfig, Loss, Order, Rate};
use udp_proto::{Config, KeyLimits, MtuSearch};
use wire::{Generator, Seed};

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// None, random up to a tenth, half of all, bursts of 8.
    Loss,
    /// 0, 20, 100 ms, 1 s.
    Delay,
    /// None, uniform up to 200 ms, spikes of 400 ms.
    Jitter,
    /// In order, some held back, all reordered by their jitter.
    Reorder,
    /// 0, 5, 25 %.
    Duplicate,
    /// None, flipped bits, ends cut off, both.
    Damage,
    /// Unlimited, 60 kB/s with 20 kB of queue, 250 kB/s with a second of queue.
    Bottleneck,
    /// No limit; 1,300 bytes; 1,452 and later 1,200. The latter two with MTU discovery.
    Mtu,
    /// None; one player's path is down for a second, or for 6.
    Partition,
    /// None, another port each second, another network twice.
    Nat,
    /// Exact, drifting by 200 ppm, drifting and stalled for up to 4 s.
    Clock,
    /// None, replays captured packets, also modifies and forges them.
    Adversary,
    /// Thresholds: defaults; keys for 16 packets; keys for 64 and a window that holds one long
    /// message.
    Limits,
}

impl Axis {
    pub(super) const ALL: [(Self, u8); 13] = [
        (Self::Loss, 4),
        (Self::Delay, 4),
        (Self::Jitter, 3),
        (Self::Reorder, 3),
        (Self::Duplicate, 3),
        (Self::Damage, 4),
        (Self::Bottleneck, 3),
        (Self::Mtu, 3),
        (Self::Partition, 3),
        (Self::Nat, 3),
        (Self::Clock, 3),
        (Self::Adversary, 3),
        (Self::Limits, 3),
    ];
}

/// A level of each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row([u8; Axis::ALL.len()]);

impl Row {
    pub(super) fn level(self, axis: Axis) -> u8 {
        let at = Axis::ALL.iter().position(|(known, _)| *known == axis);
        self.0[at.expect("every axis is listed")]
    }

    /// Applies the row to the configuration of both ends.
    pub(super) fn shape(self, config: &mut Config) {
        if self.level(Axis::Mtu) > 0 {
            config.mtu_search = MtuSearch::On;
        }
        let packets = match self.level(Axis::Limits) {
            0 => return,
            1 => 16,
            _ => {
                // 4/3 of the longest message, which is the minimum: messages wait for each other.
                config.receive_window = 0;
                64
            }
        };
        config.key_limits = KeyLimits::default().with_phase_packets(packets);
    }

    pub(super) fn link(self, generator: &mut Generator) -> LinkConfig {
        let mut pick = |choices: &[u64]| {
            let index = generator.below(u64::try_from(choices.len()).unwrap());
            choices[usize::try_from(index).unwrap()]
        };
        let percent = |count: u64| Chance::percent(u32::try_from(count).unwrap());
        let millis = Duration::from_millis;
        let mut link = LinkConfig::default()
            .with_delay(millis(
                [0, 20, 100, 1_000][usize::from(self.level(Axis::Delay))],
            ))
            .with_duplicate(percent(
                [0, 5, 25][usize::from(self.level(Axis::Duplicate))],
            ))
            .with_loss(match self.level(Axis::Loss) {
                0 => Loss::None,
                1 => Loss::Bernoulli(percent(pick(&[1, 5, 10]))),
                2 => Loss::Bernoulli(percent(pick(&[20, 30, 50]))),
                _ => Loss::bursts(percent(pick(&[5, 20, 30])), NonZeroU32::new(8).unwrap()),
            })
            .with_jitter(match self.level(Axis::Jitter) {
                0 => Jitter::None,
                1 => Jitter::Uniform(millis(pick(&[5, 50, 200]))),
                _ => Jitter::Spikes {
                    usual: millis(5),
                    rare: millis(400),
                    share: percent(2),
                },
            });
        link = match self.level(Axis::Reorder) {
            0 => link,
            1 => link.with_reorder(percent(pick(&[5, 20])), millis(pick(&[10, 60]))),
            _ => link.with_order(Order::ByDelay),
        };
        link = match self.level(Axis::Damage) {
            0 => link,
            1 => link.with_corrupt(percent(pick(&[2, 10]))),
            2 => link.with_truncate(percent(pick(&[2, 10]))),
            _ => link.with_corrupt(percent(5)).with_truncate(percent(5)),
        };
        let rate = |bytes, queue_bytes| Rate {
            bytes_per_second: NonZeroU64::new(bytes).unwrap(),
            queue_bytes,
        };
        link = match self.level(Axis::Bottleneck) {
            0 => link,
            1 => link.with_rate(rate(60_000, 20_000)),
            _ => link.with_rate(rate(250_000, 250_000)),
        };
        match self.level(Axis::Mtu) {
            0 => link,
            1 => link.with_mtu(1_300),
            _ => link.with_mtu(1_452),
        }
    }
}

/// Draws a random link: each axis is off in some seeds and extreme in others.
pub(super) fn bad_link(generator: &mut Generator) -> LinkConfig {
    let mut pick = |choices: &[u64]| {
        let index = generator.below(u64::try_from(choices.len()).unwrap());
        choices[usize::try_from(index).unwrap()]
    };
    let percent = |count: u64| Chance::percent(u32::try_from(count).unwrap());
    let millis = Duration::from_millis;
    let loss = match pick(&[0, 1, 2]) {
        0 => Loss::None,
        1 => Loss::Bernoulli(percent(pick(&[1, 10, 30, 50]))),
        _ => Loss::bursts(percent(pick(&[5, 20, 30])), NonZeroU32::new(8).unwrap()),
    };
    let jitter = match pick(&[0, 1, 2]) {
        0 => Jitter::None,
        1 => Jitter::Uniform(millis(pick(&[5, 50, 200]))),
        _ => Jitter::Spikes {
            usual: millis(5),
            rare: millis(400),
            share: percent(2),
        },
    };
    let order = [Order::Kept, Order::ByDelay][usize::try_from(pick(&[0, 1])).unwrap()];
    let mut link = LinkConfig::default()
        .with_delay(millis(pick(&[0, 20, 100, 1_000])))
        .with_jitter(jitter)
        .with_order(order)
        .with_loss(loss)
        .with_reorder(percent(pick(&[0, 5, 20])), millis(pick(&[10, 60])))
        .with_duplicate(percent(pick(&[0, 5, 25])))
        .with_corrupt(percent(pick(&[0, 0, 2, 10])))
        .with_truncate(percent(pick(&[0, 0, 2, 10])));
    if pick(&[0, 0, 0, 1]) == 1 {
        link = link.with_rate(Rate {
            bytes_per_second: NonZeroU64::new(60_000).unwrap(),
            queue_bytes: 20_000,
        });
    }
    link
}

/// Rows that cover each pair of levels of two axes, in a fixed order: repeatedly the best of fifty
/// random rows, until no pair is left.
pub(super) fn rows() -> Vec<Row> {
    let mut generator = Seed::from_number(12).generator(1);
    let mut left = pairs();
    let mut rows = Vec::new();
    while !left.is_empty() {
        let draw = |_| {
            let mut row = Row([0; Axis::ALL.len()]);
            for (level, (_, count)) in row.0.iter_mut().zip(Axis::ALL) {
                *level = u8::try_from(generator.below(count.into())).unwrap();
            }
            // Starts from an uncovered pair; otherwise the last pairs would take long.
            let (a, b) = left[usize::try_from(generator.below(left.len() as u64)).unwrap()];
            row.0[a.0] = a.1;
            row.0[b.0] = b.1;
            row
        };
        let best = (0..50)
            .map(draw)
            .max_by_key(|row| left.iter().filter(|pair| has(*row, pair)).count())
            .unwrap();
        left.retain(|pair| !has(best, pair));
        rows.push(best);
    }
    rows
}

/// A level of an axis, by the index of the axis.
type Level = (usize, u8);

fn pairs() -> Vec<(Level, Level)> {
    let levels = |at: usize| (0..Axis::ALL[at].1).map(move |level| (at, level));
    let mut pairs = Vec::new();
    for a in 0..Axis::ALL.len() {
        for b in a + 1..Axis::ALL.len() {
            pairs.extend(levels(a).flat_map(|a| levels(b).map(move |b| (a, b))));
        }
    }
    pairs
}

fn has(row: Row, (a, b): &(Level, Level)) -> bool {
    row.0[a.0] == a.1 && row.0[b.0] == b.1
}

#[test]
fn every_pair_of_fault_levels_shares_a_row() {
    let rows = rows();
    for (a, b) in pairs() {
        assert!(rows.iter().any(|row| has(*row, &(a, b))), "{a:?} {b:?}");
    }
    assert!(rows.len() <= 40, "{} rows", rows.len());
}
