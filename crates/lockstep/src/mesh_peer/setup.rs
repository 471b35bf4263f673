//! How a peer begins: what it is made of, hellos, the first boundary.

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::VecDeque;

use wire::{Instant, MatchId, Seat, Seed};

use super::clock::MeshClock;
use super::committed::Committed;
use super::committing::Committing;
use super::gathering::Gathering;
use super::hashes::OwnHashes;
use super::lane::{Lane, lane_shape};
use super::link::Link;
use super::own::Own;
use super::roster::Roster;
use super::sending::Due;
use super::{EVENTS_MAX, MeshConfig, MeshConfigError, MeshEvent, MeshPeer, MeshStats, State};
use crate::body::Body;
use crate::bundle::Shape;
use crate::checksum::LogHash;
use crate::input::{Input, encode_into};
use crate::ledger::{Haste, Ledger};
use crate::message::{
    COMMITTED_HEAD_LEN, COMMITTED_SALT_LEN, MESH_DELAY_MAX, MESH_SEATS_MAX, PLAY_HEAD_LEN_MAX,
    Terms,
};
use crate::repair::{RUN_LEN_SMALL, RepairLimits};
use crate::stepper::{Stepper, WINDOW_MAX};
use crate::tick::{PeerId, Tick};
use crate::turn::Row;
use crate::view::View;

/// Ticks whose log hashes are kept: more than from the oldest save of the longest window to the
/// newest confirmed tick.
pub(super) const LOGS: u32 = 128;

/// Shortest datagram limit: hellos and statements of 16 seats fit.
const DATAGRAM_LEN_MIN: u16 = 200;

/// What the clock may be ahead of a game that waits or is slow before it stands.
const LAG_NANOS: u32 = 100_000_000;

/// Time between hellos, give or take a quarter by lot.
const HELLO_INTERVAL_MILLIS: u64 = 50;

/// Ticks that nobody is given up before.
const PATIENCE_TICKS: u32 = 8;

impl<I: Input> MeshPeer<I> {
    /// Makes the peer of `seat`; `peers` are the driver's numbers for those on all other seats.
    /// Ticks begin when all have heard all.
    ///
    /// # Errors
    ///
    /// [`MeshConfigError`] where no such match can be played.
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
        let terms = Terms {
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
        let mut ledger = Ledger::new(shape.seats, Haste::First);
        (0..shape.seats).for_each(|seat| ledger.admit(Seat(seat)));
        let ticks = Duration::from_nanos(period.into()).saturating_mul(PATIENCE_TICKS);
        Ok(Self {
            patience: nanos(config.patience.max(ticks)),
            match_id,
            shape,
            seat,
            generator: seed.generator(0),
            state: State::Gathering { hello_at: now },
            gathering: Gathering::new(seat.0, terms, config.input_delay, now),
            roster: Roster::new(links.iter().map(|link| link.as_ref().map(|link| link.peer))),
            links,
            view: View::new(seat.0, shape.seats),
            own: Own::new(shape, &neutral, config.input_delay, now),
            lanes: lanes(&config, shape, (match_id, seat), &neutral),
            committing: committing(&config, match_id, seat),
            clock: MeshClock::new(now, period),
            lag: lag(&config),
            beat_at: now,
            body: Body::with_capacity(usize::from(config.datagram_len_max)),
            known: Tick(0),
            awaited: 0,
            read: Tick(0),
            stepper: Stepper::new(shape, &neutral, config.window, config.save),
            rows: (row.clone(), row),
            scratch: Vec::with_capacity(shape.bundle_len_max()),
            log,
            logs: vec![log; usize::try_from(LOGS).unwrap_or(usize::MAX)],
            last: None,
            hashes: OwnHashes::new(),
            ledger,
            limits,
            due: Due::default(),
            stalled: None,
            asking_since: None,
            held: neutral.clone(),
            neutral,
            // Closing and leaving are told whatever waits.
            events: VecDeque::with_capacity(EVENTS_MAX.saturating_add(64)),
            stats: MeshStats::default(),
            now,
            input: PhantomData,
            config,
        })
    }

    /// Returns the bytes that it holds on the heap, to about an allocation's worth.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(Lane::memory_len).sum();
        let lane = size_of::<Lane>().saturating_add(size_of::<Option<Link>>());
        let events = size_of::<MeshEvent>().saturating_mul(self.events.capacity());
        lanes
            .saturating_add(lane.saturating_mul(self.lanes.len()))
            .saturating_add(self.own.memory_len())
            .saturating_add(self.committing.as_ref().map_or(0, Committing::memory_len))
            .saturating_add(self.stepper.memory_len())
            .saturating_add(self.rows.0.memory_len().saturating_mul(2))
            .saturating_add(self.scratch.capacity())
            .saturating_add(self.body.memory_len())
            .saturating_add(size_of::<LogHash>().saturating_mul(self.logs.len()))
            .saturating_add(self.hashes.memory_len())
            .saturating_add(self.ledger.memory_len())
            .saturating_add(self.held.capacity())
            .saturating_add(self.neutral.capacity())
            .saturating_add(events)
    }

    /// Says hello, and begins when it is time.
    pub(super) fn gather(&mut self, now: Instant, hello_at: Instant) {
        if self.gathering.start_at().is_some_and(|at| at <= now) {
            self.start(now);
            return;
        }
        if hello_at <= now {
            let quarter = HELLO_INTERVAL_MILLIS / 4;
            let (low, high) = (
                HELLO_INTERVAL_MILLIS.saturating_sub(quarter),
                HELLO_INTERVAL_MILLIS.saturating_add(quarter),
            );
            let wait = Duration::from_millis(self.generator.between(low, high));
            self.state = State::Gathering {
                hello_at: now + wait,
            };
            self.due.hello = self.others();
        }
    }

    /// Begins with boundary 0, which may lie behind.
    fn start(&mut self, now: Instant) {
        let start_at = self.gathering.start_at().unwrap_or(now);
        self.clock = MeshClock::new(start_at, self.config.tick_rate.period_nanos());
        for link in self.links.iter_mut().flatten() {
            link.forgive(now);
        }
        self.state = State::Running { state_at: now };
        self.tell(MeshEvent::Started);
        self.tick(now, now);
    }
}

/// Ticks by which the game may be behind the clock. Whoever has confirmed all before some tick comes to
/// stamp so many ticks from there on, and one more, whatever its delay.
fn lag(config: &MeshConfig) -> u32 {
    let period = config.tick_rate.period_nanos();
    LAG_NANOS.checked_div(period).unwrap_or(2).clamp(2, 100)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Bounds of what is sent, where the configuration is one that can be played.
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
    let longest = lane_shape(shape).bundle_len_max().saturating_add(beside);
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
        len_beside: beside,
        len_small: RUN_LEN_SMALL,
        burst: config.catch_up_burst,
        gain: u32::try_from(gain).unwrap_or(u32::MAX),
    })
}

/// A lane for each seat; of our own we know when it begins.
fn lanes(
    config: &MeshConfig,
    shape: Shape,
    (match_id, own): (MatchId, Seat),
    neutral: &[u8],
) -> Vec<Lane> {
    let lane = |seat| {
        let mut lane = Lane::new(shape, neutral);
        if seat == own {
            lane.begin(config.input_delay);
        } else if config.commit.is_some() {
            lane.expect_commitments(Committed::new(
                match_id,
                seat,
                lag(config).saturating_add(1),
            ));
        }
        lane
    };
    (0..shape.seats).map(Seat).map(lane).collect()
}

/// What we commit to, if anybody does.
fn committing(config: &MeshConfig, match_id: MatchId, seat: Seat) -> Option<Committing> {
    let secret = config.commit.as_ref()?;
    let begin = Tick(config.input_delay.into());
    let step = lag(config).saturating_add(1);
    Some(Committing::new(secret, match_id, seat, (begin, step)))
}

/// A link for each seat but `own`.
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
                // The hello says that nothing happens before.
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
