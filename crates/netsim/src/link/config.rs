//! What a link does to datagrams.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use wire::Generator;

/// One direction of a path; the default is perfect: no delay, no loss, no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkConfig {
    /// One-way delay before jitter. Default 0.
    pub delay: Duration,
    /// Random extra delay of each datagram; none.
    pub jitter: Jitter,
    /// Whether jitter lets datagrams overtake each other; it does not.
    pub order: Order,
    /// Which datagrams are lost; none.
    pub loss: Loss,
    /// How often a datagram is held back by `reorder_delay` while later ones pass; never.
    pub reorder: Chance,
    /// How long a datagram chosen by `reorder` is held back. Default 0.
    pub reorder_delay: Duration,
    /// How often a datagram arrives twice; never.
    pub duplicate: Chance,
    /// How often 1 to 8 bits of one byte are flipped; never.
    pub corrupt: Chance,
    /// How often the end of a datagram is cut off; never.
    pub truncate: Chance,
    /// Bottleneck at the sending end; none.
    pub rate: Option<Rate>,
    /// Longest payload in bytes; longer datagrams are dropped. No limit.
    pub mtu: Option<usize>,
    /// Whether the link is down; false.
    pub down: bool,
}

impl LinkConfig {
    /// Sets the one-way delay.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the random extra delay of each datagram.
    #[must_use]
    pub const fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets whether jitter lets datagrams overtake each other.
    #[must_use]
    pub const fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets which datagrams are lost.
    #[must_use]
    pub const fn with_loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Sets how often a datagram arrives twice.
    #[must_use]
    pub const fn with_duplicate(mut self, duplicate: Chance) -> Self {
        self.duplicate = duplicate;
        self
    }

    /// Sets how often bits are flipped.
    #[must_use]
    pub const fn with_corrupt(mut self, corrupt: Chance) -> Self {
        self.corrupt = corrupt;
        self
    }

    /// Sets how often the end is cut off.
    #[must_use]
    pub const fn with_truncate(mut self, truncate: Chance) -> Self {
        self.truncate = truncate;
        self
    }

    /// Holds back a share of the datagrams by `delay`, so that later ones overtake them.
    #[must_use]
    pub const fn with_reorder(mut self, share: Chance, delay: Duration) -> Self {
        self.reorder = share;
        self.reorder_delay = delay;
        self
    }

    /// Sets the bottleneck.
    #[must_use]
    pub const fn with_rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Sets the longest payload, in bytes.
    #[must_use]
    pub const fn with_mtu(mut self, bytes: usize) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Takes the link down.
    #[must_use]
    pub const fn with_down(mut self) -> Self {
        self.down = true;
        self
    }

    /// Takes the link up again.
    #[must_use]
    pub const fn with_up(mut self) -> Self {
        self.down = false;
        self
    }
}

/// Distribution of a datagram's extra delay, in whole nanoseconds, without floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// Always zero.
    #[default]
    None,
    /// Uniform from 0 to this value.
    Uniform(Duration),
    /// Mean of four uniform draws up to this value: most are near half of it.
    Bell(Duration),
    /// Mostly small, sometimes large, like the retransmissions of a radio link.
    Spikes {
        /// Largest value of the usual draw.
        usual: Duration,
        /// Largest value of the rare draw.
        rare: Duration,
        /// Probability of the rare draw.
        share: Chance,
    },
}

impl Jitter {
    /// Draws the extra delay of one datagram.
    pub fn draw(self, generator: &mut Generator) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(max) => uniform(generator, max),
            Self::Bell(max) => (0..4).map(|_| uniform(generator, max)).sum::<Duration>() / 4,
            Self::Spikes { usual, rare, share } => {
                let max = if share.draw(generator) { rare } else { usual };
                uniform(generator, max)
            }
        }
    }
}

/// Whether a datagram with less jitter may overtake an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// No, as in a router's queue; only `reorder` changes the order.
    #[default]
    Kept,
    /// Yes, as when packets are spread over several paths.
    ByDelay,
}

/// Which datagrams are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability, independently.
    Bernoulli(Chance),
    /// In bursts: the link is good or bad, and may change state before each datagram (Gilbert 1960,
    /// Elliott 1963).
    GilbertElliott {
        /// Probability that good turns bad. With p for this and r for `recover`, the link is bad
        /// for p / (p + r) of the datagrams.
        worsen: Chance,
        /// Probability that bad turns good; its inverse is the mean length of a bad period.
        recover: Chance,
        /// Loss in the good state.
        good: Chance,
        /// Loss in the bad state.
        bad: Chance,
    },
}

impl Loss {
    /// Creates losses in runs of `run_len` datagrams on average, which hit the share `mean` of all
    /// datagrams. `mean` is lowered if it leaves no good period of one datagram between runs.
    #[must_use]
    pub fn bursts(mean: Chance, run_len: NonZeroU32) -> Self {
        let million = u64::from(Chance::ALWAYS.as_per_million());
        let recover = (million / u64::from(run_len.get())).max(1);
        let share = u64::from(mean.as_per_million());
        // p / (p + r) = share, so p = r * share / (1 - share).
        let worsen = (recover * share)
            .checked_div(million - share)
            .unwrap_or(million);
        Self::GilbertElliott {
            worsen: Chance::per_million(u32::try_from(worsen).unwrap_or(u32::MAX)),
            recover: Chance::per_million(u32::try_from(recover).unwrap_or(u32::MAX)),
            good: Chance::NEVER,
            bad: Chance::ALWAYS,
        }
    }
}

/// A bottleneck: a queue that drains at a constant rate and drops what does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Payload bytes that leave the queue each second. Headers below UDP are not counted.
    pub bytes_per_second: NonZeroU64,
    /// Capacity of the queue in bytes. An idle link takes one datagram of any length.
    pub queue_bytes: u64,
}

fn uniform(generator: &mut Generator, max: Duration) -> Duration {
    let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(generator.between(0, max))
}

/// A probability in millionths, at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// Probability 0.
    pub const NEVER: Self = Self(0);
    /// Probability 1.
    pub const ALWAYS: Self = Self(ONE);

    /// Creates the probability `count` / 1,000,000; a higher count gives [`Self::ALWAYS`].
    #[must_use]
    pub const fn per_million(count: u32) -> Self {
        if count > ONE {
            Self::ALWAYS
        } else {
            Self(count)
        }
    }

    /// Creates the probability `count` / 100; a higher count gives [`Self::ALWAYS`].
    #[must_use]
    pub const fn percent(count: u32) -> Self {
        Self::per_million(count.saturating_mul(ONE / 100))
    }

    /// Returns the probability in millionths.
    #[must_use]
    pub const fn as_per_million(self) -> u32 {
        self.0
    }

    /// Draws whether the event happens. Uses one number of `generator`, or none for
    /// [`Self::NEVER`].
    pub fn draw(self, generator: &mut Generator) -> bool {
        self != Self::NEVER && generator.chance(self.0)
    }
}

const ONE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    #[test]
    fn probabilities_stay_between_0_and_1() {
        assert_eq!(Chance::percent(100), Chance::ALWAYS);
        assert_eq!(Chance::percent(u32::MAX), Chance::ALWAYS);
        assert_eq!(Chance::per_million(1_000_001), Chance::ALWAYS);
        assert_eq!(Chance::default(), Chance::NEVER);
    }

    #[test]
    fn probability_0_draws_no_number() {
        let (mut used, mut fresh) = (generator(), generator());
        assert!(!Chance::NEVER.draw(&mut used));
        assert_eq!(used.next_u64(), fresh.next_u64());
        assert!(Chance::ALWAYS.draw(&mut used));
    }

    fn generator() -> Generator {
        Seed::from_number(1).generator(0)
    }
}
