//! Three figures walk on a field. The server sends their positions. Each player moves its own
//! figure at once and shows the others with a short delay, without jumps.
//!
//! ```text
//! prediction run --seconds 20     75 ms each way, 10 ms of jitter, 5 % lost, in virtual time
//! ```
//!
//! The server takes each player's inputs from a [`JitterBuffer`], one per tick. A player has a
//! [`Prediction`] of its own figure and an [`Interpolation`] of each other figure. Now and then the
//! server shoves a figure. No player can predict that, so it causes a correction.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod figure;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, value_parser};
use lockstep::{Interpolation, InterpolationConfig, JitterBuffer, Playout, Prediction};
use netsim::{Chance, Jitter, Link, LinkConfig, Loss};
use wire::{Generator, Instant, Reader, Seed, Truncated, Writer};

use figure::{FIELD, Figure, PACE, SHOVE, Way};

/// Shows prediction, interpolation and a jitter buffer over a bad network.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Plays in memory, in virtual time.
    Run {
        /// Seconds to play.
        #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(5..=600))]
        seconds: u32,
        /// Loss in percent of datagrams, each direction.
        #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(..=30))]
        loss: u32,
        /// Seed of the inputs and of the network.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    let Line::Run {
        seconds,
        loss,
        seed,
    } = Line::parse();
    let mut field = Field::new(&Seed::from_number(seed), loss);
    for second in 1..=seconds {
        field.play(Duration::from_secs(1));
        println!("{second:3} s  {}", field.tell());
    }
    // The inputs stop, and datagrams in flight arrive.
    field.is_over = true;
    field.play(Duration::from_secs(2));
    let found = field.found();
    let is_good = found.is_good();
    let verdict = if is_good { "all agree" } else { "BAD" };
    println!("prediction: {seconds} s, {}; {verdict}", found.tell());
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The server's state of one player.
struct Seat {
    figure: Figure,
    inputs: JitterBuffer<(u16, Way)>,
    /// Numbers of the newest received input and of the last applied one.
    incoming: u16,
    applied: u16,
}

/// A player's state.
struct Player {
    generator: Generator,
    way: Way,
    figure: Prediction<Way, Figure>,
    /// The remaining visual offset after a correction, on each axis.
    offset: [i32; 2],
    others: BTreeMap<usize, Interpolation<Figure>>,
    /// Positions drawn in the last frame.
    drawn: BTreeMap<usize, [i32; 2]>,
    /// Time of its next frame.
    frame_at: Instant,
    frames: u64,
    /// Consecutive frames in which an input had no visible effect.
    waits: u64,
    late_frames: u64,
    /// Longest movement between two frames, of its own figure and of others.
    own_step: i32,
    other_step: i32,
}

/// The receiver of a datagram.
#[derive(Clone, Copy)]
enum End {
    Server,
    Player,
}

/// The whole simulation.
struct Field {
    now: Instant,
    generator: Generator,
    seats: Vec<Seat>,
    players: Vec<Player>,
    /// Uplink and downlink of each player.
    links: Vec<[Link; 2]>,
    in_flight: BTreeMap<(Instant, u64), (End, usize, Vec<u8>)>,
    sent: u64,
    tick: u64,
    is_over: bool,
}

impl Field {
    fn new(seed: &Seed, loss: u32) -> Self {
        let mut seeds = seed.generator(0);
        let link = LinkConfig::default()
            .with_delay(ONE_WAY)
            .with_jitter(Jitter::Uniform(JITTER))
            .with_loss(Loss::Bernoulli(Chance::percent(loss)));
        let places = |place: usize| Figure {
            at: [i32::try_from(place).unwrap_or(0) * FIELD / 4 + FIELD / 4; 2],
            ..Figure::default()
        };
        let player = |own: usize, generator| Player {
            generator,
            way: Way::default(),
            figure: Prediction::new(places(own), 128),
            offset: [0; 2],
            others: (0..PLAYERS)
                .filter(|other| *other != own)
                .map(|other| (other, Interpolation::new(InterpolationConfig::default())))
                .collect(),
            drawn: BTreeMap::new(),
            frame_at: Instant::ZERO + Duration::from_millis(5) * u32::try_from(own).unwrap_or(0),
            frames: 0,
            waits: 0,
            late_frames: 0,
            own_step: 0,
            other_step: 0,
        };
        let seat = |place| Seat {
            figure: places(place),
            inputs: JitterBuffer::new(
                Playout::Adaptive {
                    max: Duration::from_millis(200),
                },
                128,
            ),
            incoming: 0,
            applied: 0,
        };
        let mut generator = || seeds.seed().generator(0);
        Self {
            now: Instant::ZERO,
            seats: (0..PLAYERS).map(seat).collect(),
            players: (0..PLAYERS).map(|own| player(own, generator())).collect(),
            links: (0..PLAYERS)
                .map(|_| [Link::new(link, generator()), Link::new(link, generator())])
                .collect(),
            generator: generator(),
            in_flight: BTreeMap::new(),
            sent: 0,
            tick: 0,
            is_over: false,
        }
    }

    /// Advances the virtual time in steps of one millisecond.
    fn play(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(1);
            while let Some(entry) = self.in_flight.first_entry()
                && entry.key().0 <= self.now
            {
                let (end, index, bytes) = entry.remove();
                // A malformed datagram would be dropped; this network produces none.
                match end {
                    End::Server => self.hear(index, &bytes).ok(),
                    End::Player => self.learn(index, &bytes).ok(),
                };
            }
            if self.now >= moment(self.tick) {
                self.tick += 1;
                self.simulate();
            }
            for index in 0..PLAYERS {
                self.frame(index);
            }
        }
    }

    /// The server receives a player's newest inputs, newest first.
    fn hear(&mut self, index: usize, bytes: &[u8]) -> Result<(), Truncated> {
        let (Some(seat), mut reader) = (self.seats.get_mut(index), Reader::new(bytes)) else {
            return Ok(());
        };
        let newest = reader.u16()?;
        let mut ways = Vec::new();
        while !reader.is_empty() {
            let [right, up] = [reader.u8()?, reader.u8()?].map(u8::cast_signed);
            ways.push(Way([right.clamp(-1, 1), up.clamp(-1, 1)]));
        }
        for (back, way) in (0..).zip(ways).collect::<Vec<_>>().into_iter().rev() {
            let number = newest.saturating_sub(back);
            if number > seat.incoming {
                seat.incoming = number;
                seat.inputs
                    .push(self.now, moment(number.into()), (number, way));
            }
        }
        Ok(())
    }

    /// Runs a server tick: applies due inputs, shoves a figure now and then, and sends the state.
    fn simulate(&mut self) {
        for seat in &mut self.seats {
            if !self.is_over && self.generator.chance(5_000) {
                let shove = Way::draw(&mut self.generator).0;
                seat.figure.shove = shove.map(|way| i32::from(way) * SHOVE);
                seat.figure.shoved = 12;
            }
            while let Some((_, (number, way))) = seat.inputs.pop(self.now) {
                seat.figure.step(way);
                seat.applied = number;
            }
        }
        if !self.tick.is_multiple_of(2) {
            return;
        }
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.u64(self.now.as_nanos());
        for seat in &self.seats {
            out.u16(seat.applied);
            seat.figure.encode(&mut out);
        }
        for index in 0..PLAYERS {
            self.send(End::Player, index, &bytes);
        }
    }

    /// A player receives a state.
    fn learn(&mut self, index: usize, bytes: &[u8]) -> Result<(), Truncated> {
        let (Some(player), mut reader) = (self.players.get_mut(index), Reader::new(bytes)) else {
            return Ok(());
        };
        let sent_at = Instant::from_nanos(reader.u64()?);
        for figure in 0..PLAYERS {
            let applied = reader.u16()?;
            let state = Figure::decode(&mut reader)?;
            if let Some(other) = player.others.get_mut(&figure) {
                other.push(self.now, sent_at, state);
                continue;
            }
            let step = |figure: &mut Figure, way: &Way| figure.step(*way);
            if let Some(correction) = player.figure.reconcile(applied, &state, step) {
                // The drawn position moves gradually from the predicted one to the corrected one.
                let was = correction.before.at.iter().zip(correction.after.at);
                for (offset, (before, after)) in player.offset.iter_mut().zip(was) {
                    *offset += before - after;
                }
            }
        }
        Ok(())
    }

    /// Runs a player's frame if it is due: applies its input and draws all figures.
    fn frame(&mut self, index: usize) {
        let Some(player) = self.players.get_mut(index) else {
            return;
        };
        if self.now < player.frame_at {
            return;
        }
        player.frame_at += TICK;
        player.frames += 1;
        if self.is_over {
            player.way = Way::default();
        } else if player.generator.chance(50_000) {
            player.way = Way::draw(&mut player.generator);
        }
        let way = player.way;
        match player.figure.predict(way, |figure, way| figure.step(*way)) {
            Ok(_) => player.waits = 0,
            Err(_) => player.waits += 1,
        }
        player.late_frames = player.late_frames.max(player.waits);
        player.draw(index, self.now);
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        let mut newest = player.figure.unacknowledged().take(COPIES).peekable();
        out.u16(newest.peek().map_or(0, |(number, _)| *number));
        for (_, Way(axes)) in newest {
            for axis in axes {
                out.u8(axis.cast_unsigned());
            }
        }
        self.send(End::Server, index, &bytes);
    }

    fn send(&mut self, end: End, index: usize, bytes: &[u8]) {
        let Some([up, down]) = self.links.get_mut(index) else {
            return;
        };
        let link = match end {
            End::Server => up,
            End::Player => down,
        };
        for delivery in link.send(self.now, bytes.len()) {
            self.sent += 1;
            let what = (end, index, bytes.to_vec());
            self.in_flight.insert((delivery.at, self.sent), what);
        }
    }

    /// Returns the server's positions of the figures.
    fn tell(&self) -> String {
        let places = self.seats.iter().map(|seat| {
            let [right, up] = seat.figure.at.map(|at| f64::from(at) / 1e3);
            format!("{right:5.1} {up:5.1}")
        });
        places.collect::<Vec<_>>().join("   ")
    }

    fn found(&self) -> Found {
        let stats = self.players.iter().map(|player| player.figure.stats());
        let (states, corrections) = stats.fold((0, 0), |(states, corrections), stats| {
            (states + stats.states, corrections + stats.corrections)
        });
        let others = self
            .players
            .iter()
            .flat_map(|player| player.others.values());
        let frames: u64 = self.players.iter().map(|player| player.frames).sum();
        let differs = |player: &Player, figure: usize, at: [i32; 2]| {
            let drawn = player.drawn.get(&figure);
            drawn.is_none_or(|drawn| drawn.iter().zip(at).any(|(one, two)| one.abs_diff(two) > 8))
        };
        let strays = self.players.iter().map(|player| {
            let seats = self.seats.iter().enumerate();
            seats
                .filter(|(figure, seat)| differs(player, *figure, seat.figure.at))
                .count()
        });
        Found {
            late_frames: self.players.iter().map(|it| it.late_frames).max(),
            states,
            corrections,
            own_step: self.players.iter().map(|it| it.own_step).max(),
            other_step: self.players.iter().map(|it| it.other_step).max(),
            guessed: others.map(|other| other.stats().extrapolated).sum(),
            drawn: frames * (PLAYERS as u64 - 1),
            strays: strays.sum(),
        }
    }
}

impl Player {
    /// Draws all figures and measures their movement since the last frame.
    fn draw(&mut self, own: usize, now: Instant) {
        let at = self.figure.state().at;
        let [right, up] = self.offset;
        self.offset = [right, up].map(|offset| offset - offset / 8);
        let [x, y] = at;
        let own_step = self.put(own, [x + right, y + up]);
        self.own_step = self.own_step.max(own_step);
        let mut drawn = [None; PLAYERS];
        for ((figure, other), drawn) in self.others.iter_mut().zip(&mut drawn) {
            *drawn = other.between(now).map(|between| {
                let (from, to) = (between.from.at, between.to.at);
                let mut at = from;
                for (at, to) in at.iter_mut().zip(to) {
                    let mixed = between.mix((*at).into(), to.into());
                    *at = i32::try_from(mixed).unwrap_or(to);
                }
                (*figure, at)
            });
        }
        for (figure, at) in drawn.into_iter().flatten() {
            let step = self.put(figure, at);
            // The first two seconds are excluded, because the interpolation delay still adapts.
            if now > Instant::ZERO + LEARNING {
                self.other_step = self.other_step.max(step);
            }
        }
    }

    /// Draws a figure. Returns its longest movement on either axis.
    fn put(&mut self, figure: usize, at: [i32; 2]) -> i32 {
        let before = self.drawn.insert(figure, at).unwrap_or(at);
        let steps = before.iter().zip(at).map(|(one, two)| (one - two).abs());
        steps.max().unwrap_or(0)
    }
}

/// Results of the run.
struct Found {
    /// Longest delay until an input had a visible effect, in frames.
    late_frames: Option<u64>,
    states: u64,
    corrections: u64,
    own_step: Option<i32>,
    other_step: Option<i32>,
    /// Extrapolated positions of other figures, and all drawn positions of them.
    guessed: u64,
    drawn: u64,
    /// Figures with a final drawn position that differs from the server's.
    strays: usize,
}

impl Found {
    fn is_good(&self) -> bool {
        self.late_frames == Some(0)
            && self.strays == 0
            && self.corrections > 0
            && self.corrections * 4 < self.states
            && self.guessed * 50 < self.drawn
            && self.other_step.is_some_and(|step| step <= STEP_MAX)
    }

    fn tell(&self) -> String {
        let width = |step: Option<i32>| f64::from(step.unwrap_or(0)) / 1e3;
        format!(
            "own inputs {} frames late, {} corrections by {} states, longest step of a figure in a \
             frame: own {:.2}, others' {:.2} (walking {:.2}); {} of {} others' past the newest state",
            self.late_frames.unwrap_or(0),
            self.corrections,
            self.states,
            width(self.own_step),
            width(self.other_step),
            width(Some(PACE)),
            self.guessed,
            self.drawn,
        )
    }
}

/// Returns the time of tick or input `number`.
const fn moment(number: u64) -> Instant {
    Instant::from_nanos(number.saturating_mul(16_666_667))
}

const PLAYERS: usize = 3;

/// Half of a round trip of 150 ms.
const ONE_WAY: Duration = Duration::from_millis(75);

const JITTER: Duration = Duration::from_millis(10);

/// Interval of frames and server ticks.
const TICK: Duration = Duration::from_nanos(16_666_667);

/// Number of datagrams that carry each input.
const COPIES: usize = 4;

const LEARNING: Duration = Duration::from_secs(2);

/// Maximum movement of another figure per frame, half its width; more is a visible jump. A walking
/// and shoved figure moves 160, and twice that when the server catches up on lost inputs.
const STEP_MAX: i32 = 500;
