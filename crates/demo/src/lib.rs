#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod check;
mod fault;
pub mod game;
mod game_protocol;
pub mod keyring;
mod link_faults;
mod matchmaking;
mod message;
mod observations;
pub mod plan;
pub mod process;
pub mod report;
pub mod role;
mod run;
mod table;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

use daemon::exit::{Failure, print_error};
use plan::PlanOptions;
use report::{Report, ReportFile};
use role::Role;
use table::Style;

/// Why a process ends early: one sentence.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Options of the demonstration.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The run.
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Writes the outcome to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs the complete stack on this machine, injects faults, and checks what players notice.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Line {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Inner>,
}

/// Arguments with which the demonstration starts itself.
#[derive(clap::Subcommand)]
enum Inner {
    /// One process of the demonstration.
    #[command(subcommand, hide = true)]
    Role(Role),
}

/// The program: the demonstration, or one of its processes.
#[must_use]
pub fn main() -> ExitCode {
    let line = Line::parse();
    match line.role {
        Some(Inner::Role(role)) => role.run(),
        None => run(&line.options),
    }
}

/// Runs the demonstration. The exit code is 0 if every check passes, 1 if one fails or the run ends
/// early, and 2 if the report cannot be written, which is checked first.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    match run_demo(options) {
        Ok(report) if report.ok => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            print_error("stack", &failure);
            failure.exit.into()
        }
    }
}

fn run_demo(options: &Options) -> Result<Report, Failure> {
    let path = options.report.as_deref();
    let file = path.map(|path| ReportFile::create(path, &options.plan));
    let file = file.transpose()?;
    let report = run::run_demo(options.plan);
    if let Some(file) = file {
        file.write(&report)?;
    }
    let text = summary(&report, Style::of_stdout());
    // If nobody reads stdout, the report and the exit code are enough.
    io::stdout().write_all(text.as_bytes()).ok();
    Ok(report)
}

/// Returns the summary of a run, for people.
fn summary(report: &Report, style: Style) -> String {
    let mut text = format!(
        "\n{} processes, {} ticks, round trip p50 {:.1} ms accelerated and {:.1} ms direct\n",
        report.processes, report.ticks, report.accelerated_rtt_ms.p50, report.direct_rtt_ms.p50
    );
    for check in &report.checks {
        let mark = match (style, check.ok) {
            (Style::Colour, true) => "\x1b[32mok\x1b[0m    ",
            (Style::Colour, false) => "\x1b[31mFAILED\x1b[0m",
            (_, true) => "ok    ",
            (_, false) => "FAILED",
        };
        // Writing to a string cannot fail.
        writeln!(text, "{mark}  {}: {}", check.name, check.detail).ok();
    }
    text.push_str(if report.ok {
        "stack: every check holds\n"
    } else {
        "stack: not every check holds\n"
    });
    text
}
