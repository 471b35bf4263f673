//! CPU cost of a frame, in interleaved rounds.

use core::time::Duration;

use harness::statistics::median;

use crate::play::Play;
use crate::race::{Meter, Race, Turns, reading_nanos};
use crate::stack::{FRAME, Setup, Stack};

/// Frames per match and round.
const FRAMES: u32 = 300;
/// Repetitions per frame of a workload without a network, because these take little time.
const REPEATS: u32 = 20;
/// Warm-up time of a match.
const WARM_UP: Duration = Duration::from_secs(30);

/// A match which continues from round to round.
pub struct Contender {
    /// Name of the stack.
    pub stack: &'static str,
    /// Runs this many frames and takes readings.
    run: Box<dyn FnMut(u32, Meter) -> Meter>,
    players: usize,
    found: Vec<Cost>,
}

/// Cost of one frame of one player: CPU nanoseconds or another reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// At the player.
    pub player: f64,
    /// At the server, divided by the number of players.
    pub server: f64,
}

impl Contender {
    /// Creates a match with the given `turns` and warms it up.
    pub fn new<P: Play, S: Stack<P> + 'static>(mut setup: Setup, turns: Turns) -> Self {
        setup.turn = turns.span();
        let mut race = Race::<P, S>::new(setup, turns);
        race.run(WARM_UP, &mut Meter::default());
        Self {
            stack: S::NAME,
            run: Box::new(move |frames, mut meter| {
                race.run(FRAME * frames, &mut meter);
                race.check_agreement();
                meter
            }),
            players: setup.players,
            found: Vec::new(),
        }
    }

    /// Creates a workload of frames without a network. Its cost is that of the whole frame.
    pub fn of_frames(stack: &'static str, mut frame: impl FnMut() + 'static) -> Self {
        Self {
            stack,
            run: Box::new(move |frames, mut meter| {
                meter.of_players(|| (0..frames * REPEATS).for_each(|_| frame()));
                meter
            }),
            // Each frame of a round stands for several repetitions here, which share the reading.
            players: REPEATS as usize,
            found: Vec::new(),
        }
    }

    /// Runs `frames` frames. Returns by how much `read` rose during turns, per frame and player.
    pub fn count(&mut self, frames: u32, read: fn() -> u64) -> Cost {
        let meter = Meter {
            read: Some(read),
            ..Meter::default()
        };
        let meter = (self.run)(frames, meter);
        Cost {
            player: self.share(meter.players, frames),
            server: self.share(meter.server, frames),
        }
    }

    /// Runs a round. `reading` is the cost of reading the time.
    fn time(&mut self, reading: u64) {
        let meter = (self.run)(FRAMES, Meter::of_cpu_time());
        let [of_players, of_server] = meter.spans;
        let less = |taken: u64, spans: u32| taken.saturating_sub(reading * u64::from(spans));
        self.found.push(Cost {
            player: self.share(less(meter.players, of_players), FRAMES),
            server: self.share(less(meter.server, of_server), FRAMES),
        });
    }

    fn share(&self, sum: u64, frames: u32) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let [sum, players] = [sum as f64, self.players as f64];
        sum / f64::from(frames) / players
    }

    fn median(&self) -> Cost {
        let of = |which: fn(&Cost) -> f64| median(self.found.iter().map(which).collect());
        Cost {
            player: of(|cost| cost.player),
            server: of(|cost| cost.server),
        }
    }
}

/// Runs all matches in turn, `rounds` times, in rotating order. Returns the medians of each.
pub fn compare(contenders: &mut [Contender], rounds: u32) -> Vec<Cost> {
    let reading = reading_nanos();
    let count = contenders.len();
    for round in 0..rounds as usize {
        for turn in 0..count {
            contenders[(round + turn) % count].time(reading);
        }
    }
    contenders.iter().map(Contender::median).collect()
}
