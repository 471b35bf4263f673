//! A terminal: reads keys and draws states.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::court::{CELL, Court, HEIGHT, Move, REACH, WIDTH};

/// A terminal in raw mode: no echo, keys without line buffering. Restores the settings on drop.
pub(crate) struct Terminal {
    /// The earlier settings as `stty` prints them. `None` if there is no `stty`; then keys are read
    /// only at the end of a line.
    before: Option<String>,
    keys: Receiver<u8>,
    held: Move,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let before = stty(&["-g"]).filter(|_| {
            // Ctrl-C is read as a key, because a signal would end the process without restoring the
            // terminal.
            stty(&["-icanon", "-echo", "-isig", "min", "1"]).is_some()
        });
        let (press, keys) = channel();
        thread::spawn(move || {
            for byte in io::stdin().lock().bytes() {
                let Ok(byte) = byte else { return };
                if press.send(byte).is_err() {
                    return;
                }
            }
        });
        show("\x1b[2J\x1b[?25l");
        Self {
            before,
            keys,
            held: Move::Stay,
        }
    }

    /// Returns the input since the last call, or `None` if the player quits.
    pub(crate) fn held(&mut self) -> Option<Move> {
        for key in self.keys.try_iter() {
            self.held = match key {
                b'q' | CTRL_C => return None,
                // The escape sequences of the up and down arrows end in A and B.
                b'w' | b'k' | b'A' => Move::Up,
                b's' | b'j' | b'B' => Move::Down,
                b' ' => Move::Stay,
                _ => self.held,
            };
        }
        Some(self.held)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        show("\x1b[?25h\n");
        if let Some(before) = &self.before {
            stty(&[before.trim()]);
        }
    }
}

/// Runs `stty` on this terminal and returns its output.
fn stty(words: &[&str]) -> Option<String> {
    let mut command = Command::new("stty");
    command
        .args(words)
        .stdin(Stdio::inherit())
        .stderr(Stdio::null());
    let output = command.output().ok()?;
    let is_good = output.status.success();
    is_good.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Draws the court over the last picture.
pub(crate) fn draw(court: &Court, seat: usize) {
    let [left, right] = court.points;
    let you = if seat == 0 { "left" } else { "right" };
    let mut picture = format!("\x1b[H{left:>30} : {right:<8} you are {you}\x1b[K\r\n");
    let edge = "-".repeat(cells(WIDTH) + 3);
    picture.push_str(&edge);
    picture.push_str("\r\n");
    for row in 0..=cells(HEIGHT) {
        for column in 0..=cells(WIDTH) + 2 {
            picture.push(symbol(court, row, column));
        }
        picture.push_str("\r\n");
    }
    picture.push_str(&edge);
    picture.push_str("\r\nw and s or the arrows move, space stops, q ends\x1b[K");
    show(&picture);
}

fn symbol(court: &Court, row: usize, column: usize) -> char {
    let middle = i32::try_from(row).unwrap_or_default() * CELL;
    let [left, right] = court.paddles.map(|at| (at - middle).abs() <= REACH);
    let [x, y] = court.ball.map(cells);
    match column {
        0 if left => '|',
        last if last == cells(WIDTH) + 2 && right => '|',
        _ if (row, column) == (y, x + 1) => 'o',
        _ => ' ',
    }
}

fn cells(units: i32) -> usize {
    usize::try_from(units / CELL).unwrap_or_default()
}

fn show(text: &str) {
    let mut out = io::stdout().lock();
    // If the terminal is gone, the end of the keys reports that.
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .ok();
}

const CTRL_C: u8 = 3;
