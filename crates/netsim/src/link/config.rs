//! What a link does to datagrams.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use wire::Generator;

use crate::Chance;

/// One direction of a path; the default is perfect: no delay, no loss, no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkConfig {
    /// Time from one end to the other, before jitter; 0.
    pub delay: Duration,
    /// What is added to the delay of each datagram; nothing.
    pub jitter: Jitter,
    /// Whether jitter lets datagrams overtake each other; it does not.
    pub order: Order,
    /// Which datagrams vanish; none.
    pub loss: Loss,
    /// How often a datagram is held back by `reorder_delay` while later ones pass; never.
    pub reorder: Chance,
    /// How long a datagram chosen by `reorder` is held back; 0.
    pub reorder_delay: Duration,
    /// How often a datagram arrives twice; never.
    pub duplicate: Chance,
    /// How often 1 to 8 bits of one byte are flipped; never.
    pub corrupt: Chance,
    /// How often the end of a datagram is cut off; never.
    pub truncate: Chance,
    /// Bottleneck at the sending end; none.
    pub rate: Option<Rate>,
    /// Longest payload that passes, in bytes; longer ones vanish. No limit.
    pub mtu: Option<usize>,
    /// Whether nothing passes at all; false.
    pub down: bool,
}

impl LinkConfig {
    /// Sets the time from one end to the other.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets what is added to the delay of each datagram.
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

    /// Sets which datagrams vanish.
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

    /// Holds back a share of the datagrams by `delay`, so that those sent meanwhile overtake them.
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

    /// Sets the longest payload that passes, in bytes.
    #[must_use]
    pub const fn with_mtu(mut self, bytes: usize) -> Self {
        self.mtu = Some(bytes);
        self
    }

    /// Cuts the link.
    #[must_use]
    pub const fn with_down(mut self) -> Self {
        self.down = true;
        self
    }

    /// Joins the link again.
    #[must_use]
    pub const fn with_up(mut self) -> Self {
        self.down = false;
        self
    }
}

/// How the extra delay of a datagram is drawn; all in whole nanoseconds, without floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// Always zero.
    #[default]
    None,
    /// Each value up to this one is as likely as the others.
    Uniform(Duration),
    /// Mean of four uniform draws up to this value: most lie near its half.
    Bell(Duration),
    /// Mostly small, sometimes large, as where a radio link repeats what it lost.
    Spikes {
        /// Largest value of the usual draw.
        usual: Duration,
        /// Largest value of the rare draw.
        rare: Duration,
        /// How often the rare draw is taken.
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

/// Whether a datagram that drew less jitter may pass one that was sent before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// It waits, as in the queue of a router; only `reorder` changes the order.
    #[default]
    Kept,
    /// It passes, as where packets are spread over several paths.
    ByDelay,
}

/// Which datagrams vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same chance, whatever became of those before it.
    Bernoulli(Chance),
    /// In bursts: the link is good or bad, and may change with each datagram before its fate is
    /// drawn; Gilbert 1960 and Elliott 1963.
    GilbertElliott {
        /// Good turns bad. Where it is p and `recover` is r, p / (p + r) of the datagrams meet a
        /// bad link.
        worsen: Chance,
        /// Bad turns good; the mean length of a bad stretch is its inverse.
        recover: Chance,
        /// Loss while good.
        good: Chance,
        /// Loss while bad.
        bad: Chance,
    },
}

impl Loss {
    /// Makes losses that come in runs of `run_len` datagrams on average and hit the share `mean`
    /// of all datagrams in the long run.
    ///
    /// A mean so high that no good stretch of one datagram fits between the runs is lowered to the
    /// highest that such runs allow.
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

/// A bottleneck: a queue that empties at a constant rate and drops what does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Payload bytes that leave the queue each second. Headers below UDP are not counted.
    pub bytes_per_second: NonZeroU64,
    /// Bytes that may wait. An idle link takes one datagram of any length.
    pub queue_bytes: u64,
}

/// Draws a span in `0..=max`.
fn uniform(generator: &mut Generator, max: Duration) -> Duration {
    let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(generator.between(0, max))
}
