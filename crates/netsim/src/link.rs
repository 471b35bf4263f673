//! One direction of a path between two sockets.

mod config;
#[cfg(test)]
mod tests;

use core::num::NonZeroU8;
use core::time::Duration;

use wire::{Generator, Instant};

use crate::adversary::below;

pub use config::{Chance, Jitter, LinkConfig, Loss, Order, Rate};

/// Decides when each datagram arrives, how often and how damaged.
///
/// It holds no datagram, reads no clock and does not allocate in [`send`](Self::send). The
/// [world](crate::World) uses it in virtual time, a conditioner of real sockets in real time. The
/// caller keeps the bytes until [`Delivery::at`], and then applies [`Delivery::edit`].
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    generator: Generator,
    /// State of [`Loss::GilbertElliott`].
    bad: bool,
    /// When the bottleneck's queue is empty.
    busy_until: Instant,
    /// Remainder of `busy_until`'s integer division, in nanoseconds / `bytes_per_second`.
    busy_rest: u64,
    /// Latest arrival of the datagrams that were not held back.
    newest_arrival: Instant,
    stats: LinkStats,
}

impl Link {
    /// Creates a link that draws from `generator`.
    #[must_use]
    pub fn new(config: LinkConfig, generator: Generator) -> Self {
        Self {
            config,
            generator,
            bad: false,
            busy_until: Instant::ZERO,
            busy_rest: 0,
            newest_arrival: Instant::ZERO,
            stats: LinkStats::default(),
        }
    }

    /// Sends a datagram of `len` bytes; returns its deliveries: none, one, or two.
    ///
    /// Order of effects: down link, MTU, bottleneck, loss; then for each copy delay, jitter,
    /// reordering and damage.
    pub fn send(&mut self, now: Instant, len: usize) -> Deliveries {
        self.stats.sent += 1;
        let departure = match self.depart(now, len) {
            Ok(departure) => departure,
            Err(fate) => {
                self.stats.count(fate);
                return Deliveries::none(fate);
            }
        };
        let first = self.deliver(departure, len);
        let second = self.config.duplicate.draw(&mut self.generator).then(|| {
            self.stats.duplicated += 1;
            self.deliver(departure, len)
        });
        Deliveries {
            fate: Outcome::Delivered,
            first: Some(first),
            second,
        }
    }

    /// Changes the configuration. Deliveries already returned are not affected.
    ///
    /// If the new path is shorter, later datagrams may overtake earlier ones, also under
    /// [`Order::Kept`].
    pub const fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
        self.newest_arrival = Instant::ZERO;
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Returns when a datagram leaves the bottleneck, or why it does not.
    fn depart(&mut self, now: Instant, len: usize) -> Result<Instant, Outcome> {
        if self.config.down {
            return Err(Outcome::Partitioned);
        }
        if self.config.mtu.is_some_and(|mtu| len > mtu) {
            return Err(Outcome::TooLong);
        }
        let departure = self.queue(now, len).ok_or(Outcome::QueueFull)?;
        if self.loses() {
            return Err(Outcome::Lost);
        }
        Ok(departure)
    }

    /// Passes `len` bytes through the bottleneck; `None` if its queue is full.
    fn queue(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let Some(rate) = self.config.rate else {
            return Some(now);
        };
        let per_second = u128::from(rate.bytes_per_second.get());
        let len = u128::try_from(len).unwrap_or(u128::MAX);
        if self.busy_until > now {
            let wait = self.busy_until.saturating_since(now).as_nanos();
            let backlog = (wait * per_second).div_ceil(NANOS_PER_SECOND);
            if backlog.saturating_add(len) > u128::from(rate.queue_bytes) {
                return None;
            }
        } else {
            self.busy_until = now;
            self.busy_rest = 0;
        }
        let work = len
            .saturating_mul(NANOS_PER_SECOND)
            .saturating_add(u128::from(self.busy_rest));
        let nanos = u64::try_from(work / per_second).unwrap_or(u64::MAX);
        self.busy_rest = u64::try_from(work % per_second).unwrap_or(0);
        self.busy_until += Duration::from_nanos(nanos);
        Some(self.busy_until)
    }

    fn loses(&mut self) -> bool {
        match self.config.loss {
            Loss::None => false,
            Loss::Bernoulli(chance) => chance.draw(&mut self.generator),
            Loss::GilbertElliott {
                worsen,
                recover,
                good,
                bad,
            } => {
                let turn = if self.bad { recover } else { worsen };
                self.bad ^= turn.draw(&mut self.generator);
                let loss = if self.bad { bad } else { good };
                loss.draw(&mut self.generator)
            }
        }
    }

    /// Draws the arrival and the damage of one copy.
    fn deliver(&mut self, departure: Instant, len: usize) -> Delivery {
        let jitter = self.config.jitter.draw(&mut self.generator);
        let mut at = departure + self.config.delay + jitter;
        if self.config.order == Order::Kept {
            at = at.max(self.newest_arrival);
        }
        if self.config.reorder.draw(&mut self.generator) {
            self.stats.reordered += 1;
            at += self.config.reorder_delay;
        } else {
            self.newest_arrival = self.newest_arrival.max(at);
        }
        self.stats.delivered += 1;
        self.damage(at, len)
    }

    fn damage(&mut self, at: Instant, len: usize) -> Delivery {
        let mut delivery = Delivery {
            at,
            len,
            damage: None,
        };
        if len > 0 && self.config.truncate.draw(&mut self.generator) {
            self.stats.truncated += 1;
            delivery.len = below(&mut self.generator, len);
        }
        if delivery.len > 0 && self.config.corrupt.draw(&mut self.generator) {
            self.stats.corrupted += 1;
            delivery.damage = Some(Damage::draw(&mut self.generator, delivery.len));
        }
        delivery
    }
}

/// Iterator over the copies of one datagram that will arrive.
#[derive(Clone, Debug)]
pub struct Deliveries {
    fate: Outcome,
    first: Option<Delivery>,
    second: Option<Delivery>,
}

impl Deliveries {
    /// Returns the fate of the datagram.
    #[must_use]
    pub const fn fate(&self) -> Outcome {
        self.fate
    }

    const fn none(fate: Outcome) -> Self {
        Self {
            fate,
            first: None,
            second: None,
        }
    }
}

impl Iterator for Deliveries {
    type Item = Delivery;

    fn next(&mut self) -> Option<Delivery> {
        self.first.take().or_else(|| self.second.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.first.is_some()) + usize::from(self.second.is_some());
        (left, Some(left))
    }
}

impl ExactSizeIterator for Deliveries {}

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// At least one copy arrives.
    Delivered,
    /// Drawn by [`Loss`].
    Lost,
    /// The bottleneck's queue had no room.
    QueueFull,
    /// Longer than the MTU.
    TooLong,
    /// The link is down.
    Partitioned,
}

/// A copy of a datagram that will arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// When it arrives.
    pub at: Instant,
    /// How many of its bytes arrive.
    pub len: usize,
    /// Flipped bits.
    pub damage: Option<Damage>,
}

impl Delivery {
    /// Applies the damage, and returns the bytes that arrive.
    pub fn edit<'a>(&self, datagram: &'a mut [u8]) -> &'a mut [u8] {
        let len = self.len.min(datagram.len());
        let (arrived, _) = datagram.split_at_mut(len);
        if let Some(damage) = self.damage {
            damage.apply(arrived);
        }
        arrived
    }
}

/// Flipped bits of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the byte.
    offset: usize,
    /// The bits that flip.
    mask: NonZeroU8,
}

impl Damage {
    /// Draws damage for a datagram of `len` bytes.
    pub fn draw(generator: &mut Generator, len: usize) -> Self {
        let mask = u8::try_from(generator.between(1, 255)).unwrap_or(u8::MAX);
        Self {
            offset: below(generator, len),
            mask: NonZeroU8::new(mask).unwrap_or(NonZeroU8::MAX),
        }
    }

    /// Flips the bits; an offset past the end of `datagram` changes nothing.
    pub fn apply(self, datagram: &mut [u8]) {
        if let Some(byte) = datagram.get_mut(self.offset) {
            *byte ^= self.mask.get();
        }
    }
}

/// Counters of a link.
///
/// `sent` + `duplicated` = `delivered` + `lost` + `queue_dropped` + `too_long` + `partitioned`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Datagrams given to the link.
    pub sent: u64,
    /// Copies that arrive, damaged or not.
    pub delivered: u64,
    /// Drawn by [`Loss`].
    pub lost: u64,
    /// Found the bottleneck's queue full.
    pub queue_dropped: u64,
    /// Longer than the MTU.
    pub too_long: u64,
    /// Sent while the link was down.
    pub partitioned: u64,
    /// Datagrams that arrive twice.
    pub duplicated: u64,
    /// Copies with flipped bits.
    pub corrupted: u64,
    /// Copies that were truncated.
    pub truncated: u64,
    /// Copies held back so that later ones can overtake them.
    pub reordered: u64,
}

impl LinkStats {
    const fn count(&mut self, fate: Outcome) {
        match fate {
            Outcome::Delivered => self.delivered += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::QueueFull => self.queue_dropped += 1,
            Outcome::TooLong => self.too_long += 1,
            Outcome::Partitioned => self.partitioned += 1,
        }
    }
}

/// Nanoseconds in a second.
const NANOS_PER_SECOND: u128 = 1_000_000_000;
