//! Before the first tick: who is there, that all mean the same match, and when it starts.
//!
//! Each peer tells each other whom it has heard. Once the lowest seat knows that all have heard
//! all, it names the start: the longest way and a tick from then. All who know it pass it on, as
//! the time left; who hears it takes off the way, half the quickest round trip that hellos had.

use core::time::Duration;

use wire::Instant;

use crate::message::{Hello, Seats, Terms, bit};

/// Longest round trip that is believed, in microseconds.
const RTT_MICROS_MAX: u32 = 10_000_000;

/// Longest time until the start that is believed, in microseconds: half that round trip, and the
/// longest tick with 2 s to spare.
const STARTS_IN_MICROS_MAX: i32 = 8_000_000;

/// What a peer knows before ticks begin.
#[derive(Debug)]
pub(super) struct Gathering {
    me: u16,
    terms: Terms,
    /// Our input delay when ticks begin.
    delay: u8,
    /// Origin of the clock in hellos.
    origin: Instant,
    all: Seats,
    /// Whose hello came, and ourselves.
    heard: Seats,
    /// Who means another match; told once.
    strange: Seats,
    others: [Other; 16],
    /// When tick 0 begins.
    start_at: Option<Instant>,
}

/// What another said.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// Whom it had heard.
    heard: Seats,
    /// Its newest clock, and when that came.
    echo: Option<(u32, Instant)>,
    /// Quickest round trip, in microseconds.
    rtt_micros: Option<u32>,
}

/// What a hello came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Nothing that others need to know.
    Known,
    /// Something that all others wait for.
    News,
    /// It means another match, for the first time.
    Strange,
}

impl Gathering {
    pub(super) fn new(me: u16, terms: Terms, delay: u8, now: Instant) -> Self {
        let seats = u16::from(terms.seats);
        Self {
            me,
            terms,
            delay,
            origin: now,
            all: (0..seats).map(bit).fold(0, |all, one| all | one),
            heard: bit(me),
            strange: 0,
            others: [Other::default(); 16],
            start_at: None,
        }
    }

    /// Takes a hello of the peer on seat `from`.
    pub(super) fn on_hello(&mut self, now: Instant, from: u16, hello: &Hello) -> Greeting {
        if hello.terms != self.terms || u16::from(hello.seat) != from {
            return if self.on_strange(from) {
                Greeting::Strange
            } else {
                Greeting::Known
            };
        }
        let micros = self.micros(now);
        let Some(other) = self.others.get_mut(usize::from(from)) else {
            return Greeting::Known;
        };
        let mut is_news = self.heard & bit(from) == 0;
        self.heard |= bit(from);
        other.heard |= hello.heard & self.all;
        other.echo = Some((hello.sent, now));
        if let Some(held) = hello.held {
            let rtt = micros.wrapping_sub(hello.echo).wrapping_sub(held);
            if rtt <= RTT_MICROS_MAX {
                other.rtt_micros = Some(other.rtt_micros.map_or(rtt, |known| known.min(rtt)));
            }
        }
        // Whoever knows a start was told of all, and has told so; else we would begin without some.
        if self.start_at.is_none()
            && self.heard == self.all
            && let Some(start_at) = self.find_start(now, from, hello.starts_in)
        {
            self.start_at = Some(start_at);
            is_news = true;
        }
        if is_news {
            Greeting::News
        } else {
            Greeting::Known
        }
    }

    /// Takes note that the peer on seat `from` means another match; returns whether that is new.
    pub(super) fn on_strange(&mut self, from: u16) -> bool {
        let is_new = self.strange & bit(from) == 0;
        self.strange |= bit(from);
        is_new
    }

    /// Returns what to tell the peer on seat `to`.
    pub(super) fn hello(&self, now: Instant, to: u16) -> Hello {
        let echo = self.others.get(usize::from(to)).and_then(|it| it.echo);
        let (echo, at) = echo.map_or((0, None), |(echo, at)| (echo, Some(at)));
        Hello {
            terms: self.terms,
            seat: u8::try_from(self.me).unwrap_or(u8::MAX),
            delay: self.delay,
            heard: self.heard,
            sent: self.micros(now),
            echo,
            held: at.map(|at| {
                self.micros(now)
                    .wrapping_sub(self.micros(at))
                    .min(u32::MAX >> 1)
            }),
            starts_in: self.start_at.map(|at| micros_until(now, at)),
        }
    }

    /// Returns whose hello came, and ourselves.
    pub(super) const fn heard(&self) -> Seats {
        self.heard
    }

    /// Returns when tick 0 begins, once that is known.
    pub(super) const fn start_at(&self) -> Option<Instant> {
        self.start_at
    }

    fn find_start(&self, now: Instant, from: u16, starts_in: Option<i32>) -> Option<Instant> {
        // A later one is no start: the longest way and a tick from when it was named.
        let starts_in = starts_in.filter(|micros| *micros <= STARTS_IN_MICROS_MAX);
        if let Some(starts_in) = starts_in {
            let way = i64::from(self.way_micros(from));
            let left = i64::from(starts_in)
                .saturating_sub(way)
                .saturating_mul(1_000);
            let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
            let start = u64::try_from(now.saturating_add(left)).unwrap_or(0);
            return Some(Instant::from_nanos(start));
        }
        let others = (0..16).filter(|seat| (self.all & !bit(self.me)) & bit(*seat) != 0);
        let is_ready = self.heard == self.all
            && others.clone().all(|seat| {
                let other = self.others.get(usize::from(seat));
                other.is_some_and(|other| other.heard == self.all)
            });
        if self.me != 0 || !is_ready {
            return None;
        }
        let longest = others.map(|seat| self.way_micros(seat)).max().unwrap_or(0);
        let wait = Duration::from_micros(longest.into());
        let tick = Duration::from_nanos(self.terms.period_nanos.into());
        Some(later(now, wait.saturating_add(tick)))
    }

    /// Half the quickest round trip, in microseconds; 0 before there was one.
    fn way_micros(&self, seat: u16) -> u32 {
        let other = self.others.get(usize::from(seat));
        other.and_then(|other| other.rtt_micros).unwrap_or(0) / 2
    }

    fn micros(&self, now: Instant) -> u32 {
        let micros = now.saturating_since(self.origin).as_micros();
        u32::try_from(micros & u128::from(u32::MAX)).unwrap_or(0)
    }
}

fn later(now: Instant, span: Duration) -> Instant {
    now + span
}

/// Microseconds from `now` to `at`, within what a hello can say.
fn micros_until(now: Instant, at: Instant) -> i32 {
    let nanos = i128::from(at.as_nanos()).saturating_sub(now.as_nanos().into());
    let micros = (nanos / 1_000).clamp(i128::from(i32::MIN).saturating_add(1), i32::MAX.into());
    i32::try_from(micros).unwrap_or(i32::MAX)
}
