//! The display during a run: on a terminal a table that is redrawn in place, elsewhere a line a
//! second.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::report::millis;

#[derive(Debug)]
pub(crate) struct Screen<W> {
    out: W,
    style: Style,
    /// Lines of the table on the screen.
    lines: usize,
    /// Second of the latest plain line.
    plain_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// One line after the other.
    Plain,
    /// A table that is redrawn in place.
    Live,
    /// The same, in colour.
    Colour,
}

impl Style {
    /// Chooses the style for stdout; a non-empty `NO_COLOR` disables colour.
    pub(crate) fn of_stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match (io::stdout().is_terminal(), no_color) {
            (false, _) => Self::Plain,
            (true, true) => Self::Live,
            (true, false) => Self::Colour,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) player: u16,
    pub(crate) city: &'static str,
    pub(crate) direct_us: u64,
    pub(crate) accelerated_us: u64,
    pub(crate) route: String,
    pub(crate) loss_per_million: u64,
    pub(crate) ticks: u32,
    pub(crate) hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Link ends that are up, and how many there will be.
    pub(crate) links: (usize, usize),
    pub(crate) is_registered: bool,
    pub(crate) measured: usize,
    pub(crate) joined: usize,
    pub(crate) players: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "starting: links {} of {}, game server {}, routes measured {} of {}, joined {} of {}",
            self.links.0,
            self.links.1,
            if self.is_registered { "up" } else { "pending" },
            self.measured,
            self.players,
            self.joined,
            self.players
        )
    }
}

impl<W: Write> Screen<W> {
    pub(crate) const fn new(out: W, style: Style) -> Self {
        Self {
            out,
            style,
            lines: 0,
            plain_at: None,
        }
    }

    /// Shows the state of all players; without a terminal, one line a second.
    pub(crate) fn show(&mut self, at: Duration, rows: &[Row]) -> io::Result<()> {
        let style = self.style;
        self.draw(at, &format!("{}\n", line(at, rows)), || table(rows, style))
    }

    /// Writes `plain` once a second, or on a terminal the text of `live` in place of the previous
    /// one.
    fn draw(&mut self, at: Duration, plain: &str, live: impl Fn() -> String) -> io::Result<()> {
        if self.style == Style::Plain {
            if self.plain_at == Some(at.as_secs()) {
                return Ok(());
            }
            self.plain_at = Some(at.as_secs());
            self.out.write_all(plain.as_bytes())?;
        } else {
            let live = live();
            if self.lines > 0 {
                // Cursor up, then clear to the end of the screen; ECMA-48, CUU and ED.
                write!(self.out, "\x1b[{}A\x1b[J", self.lines)?;
            }
            self.lines = live.lines().count();
            self.out.write_all(live.as_bytes())?;
        }
        self.out.flush()
    }

    /// Shows the progress of the start; without a terminal, one line a second.
    pub(crate) fn show_start(&mut self, at: Duration, progress: &Progress) -> io::Result<()> {
        let text = format!("{:>5.1} s  {progress}\n", at.as_secs_f32());
        self.draw(at, &text, || text.clone())
    }

    /// Writes a line that stays.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        if self.lines > 0 {
            write!(self.out, "\x1b[{}A\x1b[J", self.lines)?;
            self.lines = 0;
        }
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// Leaves the table on the screen; the next one starts below it, from second 0.
    pub(crate) const fn keep(&mut self) {
        self.lines = 0;
        self.plain_at = None;
    }
}

pub(crate) fn table(rows: &[Row], style: Style) -> String {
    let mut text = format!(
        "{:>6}  {:<13}{:>10}{:>13}{:>8}{:>7}  {:<16}  {}\n",
        "player", "city", "direct", "accelerated", "loss", "tick", "hash", "route"
    );
    for row in rows {
        let (start, end) = match (style, row.accelerated_us < row.direct_us) {
            (Style::Colour, true) => ("\x1b[32m", "\x1b[0m"),
            (Style::Colour | Style::Live | Style::Plain, _) => ("", ""),
        };
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{:>6}  {:<13}{:>7.1} ms{start}{:>10.1} ms{end}{:>6.1} %{:>7}  {:016x}  {}",
            row.player,
            row.city,
            millis(row.direct_us),
            millis(row.accelerated_us),
            percent(row.loss_per_million),
            row.ticks,
            row.hash,
            row.route
        )
        .ok();
    }
    text
}

pub(crate) fn line(at: Duration, rows: &[Row]) -> String {
    let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let mean = |value: fn(&Row) -> u64| {
        let sum = rows.iter().map(value).sum::<u64>();
        sum.checked_div(count).unwrap_or(0)
    };
    let routes: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row.route.as_str()).collect();
    let routes: Vec<&str> = routes.into_iter().collect();
    format!(
        "{:>5} s  tick {:>5}  direct {:>6.1} ms  accelerated {:>6.1} ms  routes {}",
        at.as_secs(),
        rows.iter().map(|row| row.ticks).min().unwrap_or(0),
        millis(mean(|row| row.direct_us)),
        millis(mean(|row| row.accelerated_us)),
        routes.join(", ")
    )
}

fn percent(per_million: u64) -> f64 {
    f64::from(u32::try_from(per_million).unwrap_or(u32::MAX)) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            Row {
                player: 0,
                city: "Lagos",
                direct_us: 120_400,
                accelerated_us: 90_000,
                route: "Lagos > London".to_owned(),
                loss_per_million: 12_000,
                ticks: 31,
                hash: 0xab,
            },
            Row {
                player: 1,
                city: "Los Angeles",
                direct_us: 10_000,
                accelerated_us: 10_000,
                route: "direct".to_owned(),
                ticks: 30,
                ..Row::default()
            },
        ]
    }

    #[test]
    fn the_table_has_a_row_for_each_player() {
        let text = table(&rows(), Style::Live);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            "     0  Lagos          120.4 ms      90.0 ms   1.2 %     31  00000000000000ab  Lagos > London"
        );
        assert_eq!(lines[1].find("00000000000000ab"), lines[0].find("hash"));
        assert!(!text.contains('\x1b'));
        assert_eq!(table(&rows(), Style::Colour).matches("\x1b[32m").count(), 1);
    }

    #[test]
    fn progress_is_shown_from_the_start() {
        let progress = Progress {
            links: (3, 20),
            is_registered: false,
            measured: 0,
            joined: 0,
            players: 8,
        };
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, Style::Plain);
        for millis in [20, 400, 1_020] {
            let at = Duration::from_millis(millis);
            screen.show_start(at, &progress).unwrap();
        }
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(
            text.lines().next(),
            Some(
                "  0.0 s  starting: links 3 of 20, game server pending, routes measured 0 of 8, \
                 joined 0 of 8"
            )
        );
    }

    #[test]
    fn a_terminal_is_redrawn_and_a_file_gets_a_line_a_second() {
        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, Style::Live);
        screen.show(Duration::from_millis(100), &rows()).unwrap();
        screen.show(Duration::from_millis(200), &rows()).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("\x1b[3A\x1b[J").count(), 1);

        let mut bytes = Vec::new();
        let mut screen = Screen::new(&mut bytes, Style::Plain);
        for millis in [0, 250, 500, 1_000, 1_250] {
            screen.show(Duration::from_millis(millis), &rows()).unwrap();
        }
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("tick    30"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
