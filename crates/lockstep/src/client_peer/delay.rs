//! Input delay, adapted to how early inputs arrive at the server.

use core::time::Duration;

use wire::Instant;

use crate::config::InputDelay;
use crate::margin::Margin;
use crate::tick::Tick;

/// Number of ticks with a remembered delay: as many as inputs can be in flight.
const TICKS: u32 = 64;

/// Time between two steps down.
const DOWN_INTERVAL: Duration = Duration::from_secs(5);

/// Time after a step up without a step down; doubles each time that a step down has to be undone.
const CALM: Duration = Duration::from_secs(10);

/// Most inputs between two acknowledgements that each count as a sample; one may be lost. More mean
/// that acknowledgements were lost, or that the path got faster.
const OVERTAKEN_MAX: u32 = 1;

/// Time for which a late input counts: in the long run at most 2.5 a minute.
const LATE_COUNTS: Duration = Duration::from_secs(24);

/// Late inputs that may count at once without an effect: at 2 % loss, two losses in a row.
const LATE_FREE: u16 = 2;

/// Late inputs within this time count once, so that an outage does not raise the delay for long.
const LATE_APART: Duration = Duration::from_secs(1);

/// Most late inputs that count at once. Each beyond [`LATE_FREE`] adds a sixteenth of a tick: two
/// ticks in all.
const LATE_MAX: u16 = LATE_FREE + 32;

/// Margin that inputs must have before the delay goes down.
const SPARE: u16 = 1;

/// Longest time without a step down, after steps down that had to be undone.
const CALM_MAX: Duration = Duration::from_secs(160);

/// A step up this long after a step down is not attributed to it.
const TAKEN_BACK: Duration = Duration::from_secs(30);

/// The delay and the samples behind it.
///
/// It moves by quarter ticks: inputs are for whole ticks, but a boundary may lie up to three
/// quarters of a tick after the arrival of a turn.
#[derive(Debug)]
pub(super) struct DelayControl {
    range: InputDelay,
    /// Length of a quarter tick, in nanoseconds.
    quarter: i64,
    /// Quarter ticks from a boundary to the arrival of the turn with its input.
    current: u16,
    /// How long before that arrival inputs had to be stamped to be in time, in nanoseconds.
    needs: Margin,
    /// Late inputs that count, and when their number last changed.
    late: (u16, Instant),
    /// How long before that arrival tick `t` was stamped, in nanoseconds, in slot `t % TICKS`.
    stamped: Vec<i64>,
    /// First tick without an acknowledgement.
    next: Option<Tick>,
    /// When the delay may go down.
    down_at: Option<Instant>,
    /// When it last went down.
    went_down: Option<Instant>,
    /// Time after a step up without a step down.
    calm: Duration,
}

impl DelayControl {
    pub(super) fn new(range: InputDelay, period_nanos: u32) -> Self {
        Self {
            range,
            quarter: i64::from(period_nanos / 4).max(1),
            current: quarters(range.min()),
            needs: Margin::new(),
            late: (0, Instant::ZERO),
            stamped: vec![0; usize::try_from(TICKS).unwrap_or(0)],
            next: None,
            down_at: None,
            went_down: None,
            calm: CALM,
        }
    }

    /// Returns the delay in ticks, rounded up.
    pub(super) fn ticks(&self) -> u8 {
        u8::try_from(self.current.div_ceil(4)).unwrap_or(u8::MAX)
    }

    /// Returns how long after the arrival of a turn a boundary is: less than a tick.
    pub(super) fn phase(&self) -> Duration {
        let phase = quarters(self.ticks()).saturating_sub(self.current);
        let nanos = self.quarter.saturating_mul(phase.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// `tick` was stamped `lead` before its turn arrives.
    pub(super) fn on_stamped(&mut self, tick: Tick, lead: Duration) {
        if let Some(stamped) = self.stamped.get_mut(place(tick)) {
            *stamped = i64::try_from(lead.as_nanos()).unwrap_or(i64::MAX);
        }
    }

    /// An input was late.
    pub(super) fn on_late(&mut self, now: Instant) {
        let (count, since) = self.late;
        if now >= since + LATE_APART {
            self.late = (count.saturating_add(1).min(LATE_MAX), now);
        }
    }

    /// The newest input that arrived, of `tick`, was `slack` quarter ticks early. Returns the new
    /// delay if it changes.
    ///
    /// Inputs between the last acknowledged one and this one arrived with it as copies, each one
    /// tick closer to its deadline.
    pub(super) fn on_slack(&mut self, now: Instant, tick: Tick, slack: i8) -> Option<u8> {
        if self.range.min() == self.range.max() || self.next.is_some_and(|next| tick < next) {
            return None;
        }
        let overtaken = self.next.map_or(0, |next| tick.since(next));
        self.next = Some(tick.plus(1));
        for back in 0..=overtaken.min(OVERTAKEN_MAX) {
            let lead = self.stamped.get(place(tick.minus(back)));
            let lead = lead.copied().unwrap_or_default();
            let late = i64::from(back)
                .saturating_mul(4)
                .saturating_sub(slack.into());
            let late = late.saturating_mul(self.quarter);
            self.needs.add(lead.saturating_add(late));
        }
        self.choose(now)
    }

    fn choose(&mut self, now: Instant) -> Option<u8> {
        let (late, since) = self.late;
        if late > 0 && now >= since + LATE_COUNTS {
            self.late = (late.saturating_sub(1), now);
        }
        let late = i64::from(late.saturating_sub(LATE_FREE)).saturating_mul(self.quarter / 4);
        let need = self.needs.need()?.max(0).saturating_add(late);
        // A boundary is a little late if time is only polled now and then; that much is ignored.
        let need = need.saturating_add(self.quarter.saturating_sub(1) / 2);
        let need = need.checked_div(self.quarter).unwrap_or(0);
        let need = u16::try_from(need).unwrap_or(u16::MAX);
        let (min, max) = (quarters(self.range.min()), quarters(self.range.max()));
        if need > self.current {
            let is_taken_back = self
                .went_down
                .take()
                .is_some_and(|at| now.saturating_since(at) < TAKEN_BACK);
            if is_taken_back {
                self.calm = self.calm.saturating_mul(2).min(CALM_MAX);
            }
            self.down_at = Some(now + self.calm);
            return self.set(need.min(max));
        }
        let down_at = *self.down_at.get_or_insert(now + self.calm);
        if now >= down_at && need.saturating_add(SPARE) <= self.current {
            self.down_at = Some(now + DOWN_INTERVAL);
            self.went_down = Some(now);
            return self.set(self.current.saturating_sub(4).max(need).max(min));
        }
        None
    }

    /// Sets the delay; returns the ticks if they change.
    fn set(&mut self, current: u16) -> Option<u8> {
        let before = self.ticks();
        self.current = current;
        let ticks = self.ticks();
        (ticks != before).then_some(ticks)
    }

    /// Heap bytes in use.
    pub(super) const fn memory_len(&self) -> usize {
        self.stamped.len().saturating_mul(size_of::<i64>())
    }
}

fn quarters(ticks: u8) -> u16 {
    u16::from(ticks).saturating_mul(4)
}

fn place(tick: Tick) -> usize {
    usize::try_from(tick.0 % TICKS).unwrap_or(0)
}
