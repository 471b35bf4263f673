//! Creation of a peer, hellos, and the start of ticks.

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Instant, MatchId, Seat, Seed};

use super::clock::MeshClock;
use super::commitment::{LocalCommitments, PeerCommitments};
use super::datagrams::Due;
use super::input_queue::{InputQueue, LocalInputs, queue_shape};
use super::membership::{Link, PeerIndex};
use super::{EVENTS_MAX, MeshConfig, MeshConfigError, MeshEvent, MeshPeer, MeshStats, State};
use crate::bundle::Shape;
use crate::checksum::LogHash;
use crate::hash_comparator::{HashComparator, SettlePolicy};
use crate::hash_history::ReportedHashes;
use crate::input::{Input, Row, encode_into};
use crate::message::{
    COMMITTED_HEAD_LEN, COMMITTED_SALT_LEN, Hello, MESH_DELAY_MAX, MESH_SEATS_MAX, MatchParameters,
    PLAY_HEAD_LEN_MAX, Seats, bit,
};
use crate::repair::{EncodedTicks, RUN_LEN_SMALL, RepairLimits};
use crate::repeat::jittered;
use crate::stepper::{Stepper, WINDOW_MAX};
use crate::tick::{PeerId, Tick, instant_of, signed_nanos};
use crate::view::View;

/// Ticks with kept log hashes: more than from the oldest save of the largest window to the
/// newest confirmed tick.
pub(super) const LOGS: u32 = 128;

/// Lowest datagram limit: hellos and statements of 16 seats fit.
const DATAGRAM_LEN_MIN: u16 = 200;

/// Time by which the clock may lead a waiting or slow game before it stops.
const LAG_NANOS: u32 = 100_000_000;

const HELLO_INTERVAL_MILLIS: u64 = 50;

const TIMEOUT_TICKS: u32 = 8;

impl<I: Input> MeshPeer<I> {
    /// Creates the peer of `seat`; `peers` are the driver's ids for all other seats. Ticks begin
    /// when each peer has received every other one's hello.
    ///
    /// # Errors
    ///
    /// [`MeshConfigError`] if such a match cannot be played.
    pub fn new(
        config: MeshConfig,
        (match_id, seat): (MatchId, Seat),
        peers: &[(Seat, PeerId)],
        seed: Seed,
        now: Instant,
    ) -> Result<Self, MeshConfigError> {
        let shape = Shape {
            seats: config.seats,
            width: I::WIDTH,
        };
        let limits = limits(&config, shape)?;
        let links = links(&config, seat, peers, &limits, now)?;
        let mut neutral = Vec::new();
        encode_into(&I::default(), &mut neutral);
        let period = config.tick_rate.period_nanos();
        let parameters = MatchParameters {
            seats: u8::try_from(config.seats).unwrap_or(u8::MAX),
            width: I::WIDTH.get(),
            period_nanos: period,
            hash_interval: config.hash_interval.get(),
            commits: config.commit.is_some(),
            match_id,
            content: config.content,
        };
        let log = LogHash::new(match_id);
        let row = Row::initial(shape.seats, shape.width, &neutral);
        let mut hash_comparator = HashComparator::new(shape.seats, SettlePolicy::First);
        (0..shape.seats).for_each(|seat| hash_comparator.admit(Seat(seat)));
        let ticks = Duration::from_nanos(period.into()).saturating_mul(TIMEOUT_TICKS);
        Ok(Self {
            peer_timeout: nanos(config.peer_timeout.max(ticks)),
            match_id,
            shape,
            seat,
            generator: seed.generator(0),
            state: State::Gathering { hello_at: now },
            gathering: HelloExchange::new(seat.0, parameters, config.input_delay, now),
            peer_index: PeerIndex::new(
                links.iter().map(|link| link.as_ref().map(|link| link.peer)),
            ),
            links,
            view: View::new(seat.0, shape.seats),
            local: LocalInputs::new(shape, &neutral, config.input_delay, now),
            queues: queues(&config, shape, (match_id, seat), &neutral),
            committing: committing(&config, match_id, seat),
            clock: MeshClock::new(now, period),
            lag: lag(&config),
            resend_at: now,
            body: EncodedTicks::with_capacity(usize::from(config.datagram_len_max)),
            known: Tick(0),
            awaited: 0,
            read: Tick(0),
            stepper: Stepper::new(shape, &neutral, config.window, config.save),
            rows: (row.clone(), row),
            scratch: Vec::with_capacity(shape.bundle_len_max()),
            log,
            logs: vec![log; usize::try_from(LOGS).unwrap_or(usize::MAX)],
            last: None,
            hashes: ReportedHashes::new(),
            hash_comparator,
            limits,
            due: Due::default(),
            stalled: None,
            asking_since: None,
            held: neutral.clone(),
            neutral,
            // Room for the final events, which are never dropped.
            events: VecDeque::with_capacity(EVENTS_MAX.saturating_add(64)),
            stats: MeshStats::default(),
            now,
            input: PhantomData,
            config,
        })
    }

    /// Returns the heap bytes in use, accurate to about one allocation.
    pub fn memory_len(&self) -> usize {
        let queues: usize = self.queues.iter().map(InputQueue::memory_len).sum();
        let queue = size_of::<InputQueue>().saturating_add(size_of::<Option<Link>>());
        let events = size_of::<MeshEvent>().saturating_mul(self.events.capacity());
        queues
            .saturating_add(queue.saturating_mul(self.queues.len()))
            .saturating_add(self.local.memory_len())
            .saturating_add(
                self.committing
                    .as_ref()
                    .map_or(0, LocalCommitments::memory_len),
            )
            .saturating_add(self.stepper.memory_len())
            .saturating_add(self.rows.0.memory_len().saturating_mul(2))
            .saturating_add(self.scratch.capacity())
            .saturating_add(self.body.memory_len())
            .saturating_add(size_of::<LogHash>().saturating_mul(self.logs.len()))
            .saturating_add(self.hashes.memory_len())
            .saturating_add(self.hash_comparator.memory_len())
            .saturating_add(self.held.capacity())
            .saturating_add(self.neutral.capacity())
            .saturating_add(events)
    }

    pub(super) fn gather(&mut self, now: Instant, hello_at: Instant) {
        if self.gathering.start_at.is_some_and(|at| at <= now) {
            self.start(now);
            return;
        }
        if hello_at <= now {
            let wait = jittered(&mut self.generator, HELLO_INTERVAL_MILLIS);
            self.state = State::Gathering {
                hello_at: now + wait,
            };
            self.due.hello = self.others();
        }
    }

    fn start(&mut self, now: Instant) {
        let start_at = self.gathering.start_at.unwrap_or(now);
        self.clock = MeshClock::new(start_at, self.config.tick_rate.period_nanos());
        for link in self.links.iter_mut().flatten() {
            link.reset_silence(now);
        }
        self.state = State::Running { state_at: now };
        self.push_event(MeshEvent::Started);
        self.tick(now, now);
    }
}

/// Ticks by which the game may lag behind the clock. A peer that has confirmed all ticks before
/// some tick can then stamp this many from there, and one more, whatever its delay.
fn lag(config: &MeshConfig) -> u32 {
    let period = config.tick_rate.period_nanos();
    LAG_NANOS.checked_div(period).unwrap_or(2).clamp(2, 100)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn limits(config: &MeshConfig, shape: Shape) -> Result<RepairLimits, MeshConfigError> {
    if config.seats < 2 || config.seats > MESH_SEATS_MAX {
        return Err(MeshConfigError::Seats);
    }
    if config.input_delay > MESH_DELAY_MAX {
        return Err(MeshConfigError::DelayOutOfRange);
    }
    if config.window > WINDOW_MAX {
        return Err(MeshConfigError::WindowOutOfRange);
    }
    let (head, beside) = match config.commit {
        Some(_) => (COMMITTED_HEAD_LEN, COMMITTED_SALT_LEN),
        None => (0, 0),
    };
    let len_max = usize::from(config.datagram_len_max)
        .saturating_sub(PLAY_HEAD_LEN_MAX)
        .saturating_sub(head);
    let longest = queue_shape(shape).bundle_len_max().saturating_add(beside);
    if config.datagram_len_max < DATAGRAM_LEN_MIN || longest > len_max {
        return Err(MeshConfigError::DatagramTooShort);
    }
    let period = config.tick_rate.period_nanos();
    let gain = u64::from(config.catch_up_rate).saturating_mul(period.into()) / 1_000_000_000;
    Ok(RepairLimits {
        ticks: config.repair.get().into(),
        period_nanos: period.into(),
        report_ticks: 1,
        len_max,
        reserved_len: beside,
        len_small: RUN_LEN_SMALL,
        burst: config.catch_up_burst,
        gain: u32::try_from(gain).unwrap_or(u32::MAX),
    })
}

fn queues(
    config: &MeshConfig,
    shape: Shape,
    (match_id, own): (MatchId, Seat),
    neutral: &[u8],
) -> Vec<InputQueue> {
    let queue = |seat| {
        let mut queue = InputQueue::new(shape, neutral);
        if seat == own {
            queue.begin(config.input_delay);
        } else if config.commit.is_some() {
            queue.expect_commitments(PeerCommitments::new(
                match_id,
                seat,
                lag(config).saturating_add(1),
            ));
        }
        queue
    };
    (0..shape.seats).map(Seat).map(queue).collect()
}

fn committing(config: &MeshConfig, match_id: MatchId, seat: Seat) -> Option<LocalCommitments> {
    let secret = config.commit.as_ref()?;
    let begin = Tick(config.input_delay.into());
    let step = lag(config).saturating_add(1);
    Some(LocalCommitments::new(secret, match_id, seat, (begin, step)))
}

fn links(
    config: &MeshConfig,
    own: Seat,
    peers: &[(Seat, PeerId)],
    limits: &RepairLimits,
    now: Instant,
) -> Result<Vec<Option<Link>>, MeshConfigError> {
    let mut links: Vec<Option<Link>> = (0..config.seats).map(|_| None).collect();
    for &(seat, peer) in peers {
        let is_known = links.iter().flatten().any(|link| link.peer == peer);
        match links.get_mut(usize::from(seat.0)) {
            Some(link @ None) if !is_known && seat != own => {
                let mut new = Link::new(peer, limits, now);
                // The hello announces that there are no inputs before.
                new.repair.begin_at(Tick(config.input_delay.into()));
                *link = Some(new);
            }
            Some(_) | None => return Err(MeshConfigError::Peers),
        }
    }
    let others = usize::from(config.seats).checked_sub(1);
    if own.0 < config.seats && Some(links.iter().flatten().count()) == others {
        Ok(links)
    } else {
        Err(MeshConfigError::Peers)
    }
}

const RTT_MICROS_MAX: u32 = 10_000_000;

/// Longest accepted time until the start, in microseconds: half that round trip, and the longest
/// tick, with 2 s to spare.
const STARTS_IN_MICROS_MAX: i32 = 8_000_000;

#[derive(Debug)]
pub(super) struct HelloExchange {
    me: u16,
    parameters: MatchParameters,
    delay: u8,
    origin: Instant,
    all: Seats,
    /// Seats with a received hello, and our own.
    pub(super) received: Seats,
    /// Seats with different parameters; each is reported once.
    mismatched: Seats,
    others: [Other; 16],
    pub(super) start_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// Seats from which it has received a hello.
    received: Seats,
    echo: Option<(u32, Instant)>,
    rtt_micros: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloOutcome {
    /// Nothing new for others.
    Known,
    /// Something that all others wait for.
    New,
    /// Different parameters, for the first time.
    Mismatched,
}

impl HelloExchange {
    pub(super) fn new(me: u16, parameters: MatchParameters, delay: u8, now: Instant) -> Self {
        let seats = u16::from(parameters.seats);
        Self {
            me,
            parameters,
            delay,
            origin: now,
            all: (0..seats).map(bit).fold(0, |all, one| all | one),
            received: bit(me),
            mismatched: 0,
            others: [Other::default(); 16],
            start_at: None,
        }
    }

    pub(super) fn on_hello(&mut self, now: Instant, from: u16, hello: &Hello) -> HelloOutcome {
        if hello.parameters != self.parameters || u16::from(hello.seat) != from {
            return if self.on_mismatched(from) {
                HelloOutcome::Mismatched
            } else {
                HelloOutcome::Known
            };
        }
        let micros = self.micros(now);
        let Some(other) = self.others.get_mut(usize::from(from)) else {
            return HelloOutcome::Known;
        };
        let mut is_news = self.received & bit(from) == 0;
        self.received |= bit(from);
        other.received |= hello.received & self.all;
        other.echo = Some((hello.sent, now));
        if let Some(held) = hello.held {
            let rtt = micros.wrapping_sub(hello.echo).wrapping_sub(held);
            if rtt <= RTT_MICROS_MAX {
                other.rtt_micros = Some(other.rtt_micros.map_or(rtt, |known| known.min(rtt)));
            }
        }
        // A peer that knows the start has received all hellos.
        if self.start_at.is_none()
            && self.received == self.all
            && let Some(start_at) = self.find_start(now, from, hello.starts_in)
        {
            self.start_at = Some(start_at);
            is_news = true;
        }
        if is_news {
            HelloOutcome::New
        } else {
            HelloOutcome::Known
        }
    }

    /// The peer on seat `from` has different parameters; returns whether that is new.
    pub(super) fn on_mismatched(&mut self, from: u16) -> bool {
        let is_new = self.mismatched & bit(from) == 0;
        self.mismatched |= bit(from);
        is_new
    }

    pub(super) fn hello(&self, now: Instant, to: u16) -> Hello {
        let echo = self.others.get(usize::from(to)).and_then(|it| it.echo);
        let (echo, at) = echo.map_or((0, None), |(echo, at)| (echo, Some(at)));
        Hello {
            parameters: self.parameters,
            seat: u8::try_from(self.me).unwrap_or(u8::MAX),
            delay: self.delay,
            received: self.received,
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

    fn find_start(&self, now: Instant, from: u16, starts_in: Option<i32>) -> Option<Instant> {
        // A later one is invalid: the start is one longest latency and one tick after it was set.
        let starts_in = starts_in.filter(|micros| *micros <= STARTS_IN_MICROS_MAX);
        if let Some(starts_in) = starts_in {
            let way = i64::from(self.way_micros(from));
            let left = i64::from(starts_in)
                .saturating_sub(way)
                .saturating_mul(1_000);
            return Some(instant_of(signed_nanos(now).saturating_add(left)));
        }
        let others = (0..16).filter(|seat| (self.all & !bit(self.me)) & bit(*seat) != 0);
        let is_ready = self.received == self.all
            && others.clone().all(|seat| {
                let other = self.others.get(usize::from(seat));
                other.is_some_and(|other| other.received == self.all)
            });
        if self.me != 0 || !is_ready {
            return None;
        }
        let longest = others.map(|seat| self.way_micros(seat)).max().unwrap_or(0);
        let wait = Duration::from_micros(longest.into());
        let tick = Duration::from_nanos(self.parameters.period_nanos.into());
        Some(now + wait + tick)
    }

    /// Half the lowest round trip, in microseconds; 0 if unknown.
    fn way_micros(&self, seat: u16) -> u32 {
        let other = self.others.get(usize::from(seat));
        other.and_then(|other| other.rtt_micros).unwrap_or(0) / 2
    }

    fn micros(&self, now: Instant) -> u32 {
        let micros = now.saturating_since(self.origin).as_micros();
        u32::try_from(micros & u128::from(u32::MAX)).unwrap_or(0)
    }
}

/// Microseconds from `now` to `at`, within the range of a hello.
fn micros_until(now: Instant, at: Instant) -> i32 {
    let nanos = i128::from(at.as_nanos()).saturating_sub(now.as_nanos().into());
    let micros = (nanos / 1_000).clamp(i128::from(i32::MIN).saturating_add(1), i32::MAX.into());
    i32::try_from(micros).unwrap_or(i32::MAX)
}
