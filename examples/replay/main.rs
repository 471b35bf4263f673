//! A match in a file: recorded, played from any tick, verified, and compared.
//!
//! ```text
//! replay record match.twrp                    four bots play a minute over a lossy network; prints
//!                                             the server's signing key
//! replay play match.twrp --from 600           plays from tick 600
//! replay seek match.twrp 1234                 the state before tick 1234
//! replay verify match.twrp --key KEY          simulates it again; the exit status is 1 if a state
//!                                             differs or a signature is not by KEY
//! replay diff match.twrp other.twrp           the first tick in which they differ
//! replay record wrong.twrp --disturb-at 100   a server whose state is corrupted at tick 100
//! ```
//!
//! All commands that read take `--json`. The exit status is 1 if a check fails, 2 if the command
//! line is invalid.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod record;

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use demo::game::Game;
use lockstep::Tick;
use lockstep::replay::{
    Difference, Ending, ReplayLimits, ReplayPlayer, ReplayReader, first_difference,
};
use serde_json::{Value, json};
use tickwire::crypto::{Provider, PublicKey, Ring};
use tickwire::servicer::Clock;
use wire::Seed;

/// Game name and version in the replays.
const GAME: &[u8] = b"coins 1";
/// Maximum length of a file: about 300 hours of eight pads.
const FILE_LEN_MAX: u64 = 256 << 20;

/// Records, plays and verifies matches.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Lets bots play a match and records it.
    Record {
        file: PathBuf,
        #[command(flatten)]
        options: record::Options,
    },
    /// Plays a replay and prints each second of it.
    Play {
        file: PathBuf,
        /// The first tick.
        #[arg(long, default_value_t = 0)]
        from: u32,
        /// Prints JSON, one line per second.
        #[arg(long)]
        json: bool,
    },
    /// Prints the state before a tick.
    Seek {
        file: PathBuf,
        tick: u32,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Simulates a replay again and compares every state in it.
    Verify {
        file: PathBuf,
        /// The recording server's key, which must have made every signature.
        #[arg(long)]
        key: Option<PublicKey>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compares two replays of one match.
    Diff {
        one: PathBuf,
        other: PathBuf,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Line::parse() {
        Line::Record { file, options } => record::run(&file, &options),
        Line::Play { file, from, json } => play(&file, Tick(from), Form::of(json)),
        Line::Seek { file, tick, json } => seek(&file, Tick(tick), Form::of(json)),
        Line::Verify { file, key, json } => verify(&file, key, Form::of(json)),
        Line::Diff { one, other, json } => diff(&one, &other, Form::of(json)),
    };
    tickwire_examples::end("replay", outcome)
}

/// Output format.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Json,
}

impl Form {
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "a flag of the command line"
    )]
    const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }

    /// Prints one line, as text or as a JSON object with the schema version.
    fn print(self, text: &str, mut object: Value) {
        match self {
            Self::Text => println!("{text}"),
            Self::Json => {
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("schema".to_owned(), json!(1));
                }
                println!("{object}");
            }
        }
    }
}

fn play(path: &Path, from: Tick, form: Form) -> Result<(), Box<dyn Error>> {
    let bytes = read(path)?;
    let replay = open(path, &bytes)?;
    let mut player = player(&replay)?;
    player.seek(from)?;
    while let Some(tick) = player.step().map(|turn| turn.tick()) {
        if tick.0.is_multiple_of(30) || tick.0 + 1 == replay.ticks() {
            show(&player, tick, form);
        }
    }
    Ok(())
}

/// Prints the state after `tick`.
fn show(player: &ReplayPlayer<'_, Game>, tick: Tick, form: Form) {
    let (hash, scores) = (player.state_hash(), scores(player.sim()));
    form.print(
        &format!("tick {:>4}  hash {hash:016x}  coins {scores}", tick.0),
        json!({ "tick": tick.0, "hash": format!("{hash:016x}"), "coins": coins(player.sim()) }),
    );
}

fn seek(path: &Path, tick: Tick, form: Form) -> Result<(), Box<dyn Error>> {
    let bytes = read(path)?;
    let replay = open(path, &bytes)?;
    let mut player = player(&replay)?;
    let steps = player.seek(tick)?;
    let (hash, scores) = (player.state_hash(), scores(player.sim()));
    form.print(
        &format!("before tick {tick}  hash {hash:016x}  coins {scores}  ({steps} steps)"),
        json!({
            "tick": tick.0,
            "hash": format!("{hash:016x}"),
            "coins": coins(player.sim()),
            "steps": steps,
        }),
    );
    Ok(())
}

fn verify(path: &Path, key: Option<PublicKey>, form: Form) -> Result<(), Box<dyn Error>> {
    let bytes = read(path)?;
    let replay = open(path, &bytes)?;
    let mut player = player(&replay)?;
    let (clock, seals) = (Clock::new(), signed_ticks(&replay, key)?);
    let began = clock.now();
    let verified = player.verify()?;
    let micros = clock.now().saturating_since(began).as_micros().max(1);
    let rate = u128::from(verified.ticks) * 1_000_000 / micros;
    let (ticks, hashes, keyframes) = (verified.ticks, verified.hashes, verified.keyframes);
    let ending = match replay.ending() {
        Ending::Complete => "complete",
        Ending::Cut { .. } => "cut off",
    };
    let digits = replay.head().digest.map(|byte| format!("{byte:02x}"));
    let signed = seals.map_or_else(String::new, |ticks| format!(", signed up to tick {ticks}"));
    form.print(
        &format!(
            "verified: {ticks} ticks, {hashes} state hashes, {keyframes} keyframes, \
             {ending}{signed}; head {}; {rate} ticks a second",
            digits.concat()
        ),
        json!({
            "ticks": ticks,
            "hashes": hashes,
            "keyframes": keyframes,
            "ending": ending,
            "signed_ticks": seals,
            "head": digits.concat(),
        }),
    );
    Ok(())
}

/// Returns the tick up to which `key` has signed the inputs, if a key is given.
fn signed_ticks(
    replay: &ReplayReader<'_>,
    key: Option<PublicKey>,
) -> Result<Option<u32>, Box<dyn Error>> {
    let Some(key) = key else {
        return Ok(None);
    };
    let provider = Ring::new();
    let mut signed = None;
    for (head, words) in replay.seals() {
        let is_signed = words
            .try_into()
            .is_ok_and(|signature| provider.verify(&key, &head.to_bytes(), signature));
        if !is_signed {
            return Err(format!("the signature of tick {} is not of this key", head.ticks).into());
        }
        signed = Some(head.ticks);
    }
    Ok(Some(signed.ok_or("nothing in it is signed")?))
}

fn diff(one: &Path, other: &Path, form: Form) -> Result<(), Box<dyn Error>> {
    let (ones, others) = (read(one)?, read(other)?);
    let (ones, others) = (open(one, &ones)?, open(other, &others)?);
    let Some(difference) = first_difference(&ones, &others) else {
        form.print("they tell the same match", json!({ "part": null }));
        return Ok(());
    };
    let (part, tick, text) = match difference {
        Difference::Match => ("match", None, "they are of different matches".to_owned()),
        Difference::Inputs { tick } => (
            "inputs",
            Some(tick.0),
            format!("the inputs of tick {tick} differ"),
        ),
        Difference::State { tick } => {
            let text = format!("equal inputs lead to different states at tick {tick}");
            ("state", Some(tick.0), text)
        }
        Difference::Length { tick } => {
            let text = format!("they are equal up to tick {tick}, where one ends");
            ("length", Some(tick.0), text)
        }
    };
    form.print(&text, json!({ "part": part, "tick": tick }));
    Err("the replays differ".into())
}

/// Reads a file; the error names it.
fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let fault = |error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fault)?;
    file.take(FILE_LEN_MAX)
        .read_to_end(&mut bytes)
        .map_err(fault)?;
    Ok(bytes)
}

fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<ReplayReader<'a>, Box<dyn Error>> {
    let replay = ReplayReader::open(bytes, &ReplayLimits::default())
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if replay.ending() != Ending::Complete {
        eprintln!(
            "{}: cut off behind {} ticks",
            path.display(),
            replay.ticks()
        );
    }
    Ok(replay)
}

/// Creates a player with the initial state of the replay's header.
fn player<'a>(replay: &'a ReplayReader<'a>) -> Result<ReplayPlayer<'a, Game>, Box<dyn Error>> {
    let header = replay.header();
    let seed = <[u8; 8]>::try_from(header.seed.as_slice());
    let (true, Ok(seed)) = (header.game == GAME, seed) else {
        return Err("it is a replay of another game".into());
    };
    let seed = Seed::from_number(u64::from_be_bytes(seed));
    let game = Game::new(seed, header.shape.seats);
    Ok(ReplayPlayer::new(replay, game).ok_or("it is a replay of another game")?)
}

fn scores(game: &Game) -> String {
    let scores: Vec<_> = game.scores().map(|score| score.to_string()).collect();
    scores.join(" : ")
}

fn coins(game: &Game) -> Vec<u32> {
    game.scores().collect()
}
