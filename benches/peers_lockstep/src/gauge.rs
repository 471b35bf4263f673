//! Steps, stalls and traffic of a match during a minute of virtual time.

use core::time::Duration;

use crate::network::Traffic;
use crate::play::Play;
use crate::race::{Meter, ORIGIN, POLL, Race, Turns};
use crate::stack::{Count, FRAME, Setup, Stack};

/// Bytes of IPv4 and UDP headers per datagram.
pub const UDP: u64 = 28;
/// Time between the first step of all players and the measurement, in which adaptive settings
/// converge.
const WARM_UP: Duration = Duration::from_mins(1);
/// Duration of the measurement.
const SPAN: Duration = Duration::from_mins(1);
/// Time limit for all players to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Results of a match; means over players unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Time until the last player has taken the first step, in milliseconds.
    pub first_step_ms: f64,
    /// New steps per second.
    pub frames_per_s: f64,
    /// Resimulated steps per second.
    pub resimulated_per_s: f64,
    /// Milliseconds per second by which steps were later than one tick after the last.
    pub stalled_ms_per_s: f64,
    /// Stall in milliseconds that one step in a thousand exceeds.
    pub p999_stall_ms: f64,
    /// Longest stall of any player, in milliseconds.
    pub worst_stall_ms: f64,
    /// Bytes that a player sends, with encryption overhead and UDP headers.
    pub up_bytes_per_s: f64,
    /// Bytes that a player receives, with the same overhead.
    pub down_bytes_per_s: f64,
    /// Bytes that a player's stack passes to its transport.
    pub up_payload_bytes_per_s: f64,
    /// Bytes that the transport passes to the stack.
    pub down_payload_bytes_per_s: f64,
    /// Bytes that a player sends, with UDP headers but without encryption overhead.
    pub up_unsealed_bytes_per_s: f64,
    /// Bytes of the longest datagram, sealed if the stack encrypts.
    pub longest_datagram_bytes: f64,
    /// Datagrams that a player sends.
    pub up_datagrams_per_s: f64,
    /// Time from reading an input to its step, in milliseconds, if the stack reports it.
    /// Peer-to-peer stacks have the configured delay when nothing stalls them.
    pub latency_ms: Option<f64>,
    /// Inputs per player and minute that arrived too late, or `None` if the stack does not report
    /// it.
    pub late_per_minute: Option<f64>,
}

/// Plays a match for a minute and returns its results.
pub fn gauge<P: Play, S: Stack<P>>(setup: Setup) -> Found {
    let (mut race, first_step) = begun::<P, S>(setup);
    race.run(WARM_UP, &mut Meter::default());
    let before = Totals::of(&race);
    let mut watch = Watch::new(&race);
    watch.run(&mut race, SPAN);
    let stalls = watch.end(&race);
    let totals = Totals::of(&race).since(&before);
    race.check_agreement();
    found::<P, S>(&setup, first_step, &totals, stalls)
}

/// Creates a match and plays until all players have taken a step. Returns how long that took.
pub fn begun<P: Play, S: Stack<P>>(setup: Setup) -> (Race<P, S>, Duration) {
    let mut race = Race::<P, S>::new(setup, Turns::Each4Ms);
    let has_begun = |race: &Race<P, S>| {
        let mut players = 0..setup.players;
        players.all(|player| race.stack.game(player).steps.fresh > 0)
    };
    while !has_begun(&race) {
        let is_late = race.now() > ORIGIN + PATIENCE;
        assert!(!is_late, "{} does not begin", S::NAME);
        race.step(&mut Meter::default());
    }
    let first_step = race.now().saturating_sub(ORIGIN);
    (race, first_step)
}

/// Effects of an outage of one player.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// Longest total stall of any other player, in milliseconds.
    pub others_stalled_ms: f64,
    /// Milliseconds from the end of the outage until the player had caught up.
    pub caught_up_ms: f64,
}

/// Duration of the outage of the last player in [`outage`].
const OUTAGE: Duration = Duration::from_millis(500);

/// Cuts the last player off for half a second.
pub fn outage<P: Play, S: Stack<P>>(setup: Setup) -> Outage {
    let (mut race, _) = begun::<P, S>(setup);
    race.run(WARM_UP, &mut Meter::default());
    let victim = setup.players - 1;
    let end = race.now() + OUTAGE;
    let node = u32::try_from(victim).expect("a player");
    race.network.cut(node, [race.now(), end]);
    let mut watch = Watch::new(&race);
    watch.run(&mut race, OUTAGE);
    let mut caught_up = None;
    while race.now() < end + 20 * OUTAGE {
        watch.step(&mut race);
        let steps = |player| race.stack.game(player).steps.fresh;
        // A difference of two steps is normal between players on different paths.
        if caught_up.is_none() && steps(victim) + 2 >= steps(0) {
            caught_up = Some(race.now().saturating_sub(end));
        }
    }
    race.check_agreement();
    let stalls = watch.end(&race);
    let others = stalls.iter().take(victim).map(|it| it.iter().sum()).max();
    Outage {
        others_stalled_ms: others.map_or(0.0, millis),
        caught_up_ms: caught_up.map_or(f64::INFINITY, millis),
    }
}

/// The step in which player 0 diverges in [`desync`].
const DIVERGING_STEP: u64 = 600;

/// Makes one player's step 601 diverge. Returns the milliseconds until any end has detected it.
pub fn desync<P: Play, S: Stack<P>>(mut setup: Setup) -> f64 {
    setup.diverges = Some((0, DIVERGING_STEP));
    let (mut race, _) = begun::<P, S>(setup);
    while race.stack.game(0).steps.fresh <= DIVERGING_STEP {
        race.step(&mut Meter::default());
        let is_false = race.stack.has_found_desync();
        assert!(!is_false, "{}: a false alarm", S::NAME);
    }
    let since = race.now();
    while !race.stack.has_found_desync() && race.now() < since + PATIENCE {
        race.step(&mut Meter::default());
    }
    if race.stack.has_found_desync() {
        millis(race.now().saturating_sub(since))
    } else {
        f64::INFINITY
    }
}

/// Observes the steps of all players for gaps.
///
/// A stall is a gap of more than a tick and a turn between two steps, because a poll every 4 ms may
/// see a step that much late. Its length is the gap minus one tick.
#[derive(Debug)]
struct Watch {
    /// New steps of each player, and the time of the last.
    seen: Vec<(u64, Duration)>,
    stalls: Vec<Vec<Duration>>,
}

impl Watch {
    fn new<P: Play, S: Stack<P>>(race: &Race<P, S>) -> Self {
        let players = 0..race.setup().players;
        let seen = |player| (race.stack.game(player).steps.fresh, race.now());
        Self {
            stalls: players.clone().map(|_| Vec::new()).collect(),
            seen: players.map(seen).collect(),
        }
    }

    fn run<P: Play, S: Stack<P>>(&mut self, race: &mut Race<P, S>, span: Duration) {
        let end = race.now() + span;
        while race.now() < end {
            self.step(race);
        }
    }

    fn step<P: Play, S: Stack<P>>(&mut self, race: &mut Race<P, S>) {
        race.step(&mut Meter::default());
        let now = race.now();
        for (player, (seen, stalls)) in self.seen.iter_mut().zip(&mut self.stalls).enumerate() {
            let fresh = race.stack.game(player).steps.fresh;
            if fresh != seen.0 {
                stalls.extend(stall(seen.1, now));
                *seen = (fresh, now);
            }
        }
    }

    /// Returns every player's stalls, including those in progress.
    fn end<P: Play, S: Stack<P>>(mut self, race: &Race<P, S>) -> Vec<Vec<Duration>> {
        for ((_, at), stalls) in self.seen.iter().zip(&mut self.stalls) {
            stalls.extend(stall(*at, race.now()));
        }
        self.stalls
    }
}

fn stall(from: Duration, to: Duration) -> Option<Duration> {
    let over = to.saturating_sub(from).saturating_sub(FRAME);
    (over > POLL).then_some(over)
}

/// Sums over all players.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    traffic: Traffic,
    fresh: u64,
    repeated: u64,
    count: Count,
}

impl Totals {
    fn of<P: Play, S: Stack<P>>(race: &Race<P, S>) -> Self {
        let mut all = Self::default();
        let players = 0..race.setup().players;
        for (player, traffic) in players.zip(race.network.traffic()) {
            all.traffic.up_datagrams += traffic.up_datagrams;
            all.traffic.up_bytes += traffic.up_bytes;
            all.traffic.down_datagrams += traffic.down_datagrams;
            all.traffic.down_bytes += traffic.down_bytes;
            all.traffic.longest = all.traffic.longest.max(traffic.longest);
            let steps = race.stack.game(player).steps;
            all.fresh += steps.fresh;
            all.repeated += steps.repeated;
            let count = race.stack.count(player);
            all.count.late += count.late;
            all.count.latency += count.latency;
            all.count.answered += count.answered;
        }
        all
    }

    const fn since(&self, before: &Self) -> Self {
        Self {
            traffic: Traffic {
                up_datagrams: self.traffic.up_datagrams - before.traffic.up_datagrams,
                up_bytes: self.traffic.up_bytes - before.traffic.up_bytes,
                down_datagrams: self.traffic.down_datagrams - before.traffic.down_datagrams,
                down_bytes: self.traffic.down_bytes - before.traffic.down_bytes,
                longest: self.traffic.longest,
            },
            fresh: self.fresh - before.fresh,
            repeated: self.repeated - before.repeated,
            count: Count {
                late: self.count.late - before.count.late,
                latency: self.count.latency.saturating_sub(before.count.latency),
                answered: self.count.answered - before.count.answered,
            },
        }
    }
}

fn found<P: Play, S: Stack<P>>(
    setup: &Setup,
    first_step: Duration,
    totals: &Totals,
    stalls: Vec<Vec<Duration>>,
) -> Found {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = |sum: u64| sum as f64 / setup.players as f64 / SPAN.as_secs_f64();
    let [seal_up, seal_down] = S::SEAL;
    let traffic = totals.traffic;
    let steps = usize::try_from(totals.fresh).unwrap_or(usize::MAX);
    let mut stalls: Vec<_> = stalls.into_iter().flatten().collect();
    stalls.sort_unstable();
    stalls.reverse();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let latency = |it: &Count| millis(it.latency) / it.answered as f64;
    let count = Some(totals.count).filter(|it| it.answered > 0);
    let reported = (!S::HAS_SERVER).then(|| millis(FRAME * setup.delay));
    let all: Duration = stalls.iter().sum();
    Found {
        first_step_ms: millis(first_step),
        frames_per_s: each(totals.fresh),
        resimulated_per_s: each(totals.repeated),
        stalled_ms_per_s: each(u64::try_from(all.as_micros()).unwrap_or(u64::MAX)) / 1e3,
        p999_stall_ms: stalls.get(steps / 1_000).copied().map_or(0.0, millis),
        worst_stall_ms: stalls.first().copied().map_or(0.0, millis),
        up_bytes_per_s: each(traffic.up_bytes + (seal_up + UDP) * traffic.up_datagrams),
        down_bytes_per_s: each(traffic.down_bytes + (seal_down + UDP) * traffic.down_datagrams),
        up_payload_bytes_per_s: each(traffic.up_bytes),
        down_payload_bytes_per_s: each(traffic.down_bytes),
        up_unsealed_bytes_per_s: each(traffic.up_bytes + UDP * traffic.up_datagrams),
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        longest_datagram_bytes: (traffic.longest + seal_up) as f64,
        up_datagrams_per_s: each(traffic.up_datagrams),
        latency_ms: count.as_ref().map(latency).or(reported),
        late_per_minute: count.map(|it| each(it.late) * 60.0),
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
