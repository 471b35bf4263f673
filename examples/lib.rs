//! Each example is a program in this folder: `cargo run --release --example echo`.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Ends a program with status 0, or with status 1 and a one-sentence error on stderr.
///
/// If `main` returned a `Result`, its error would be printed in `Debug` format.
#[must_use]
pub fn end(program: &str, outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    // Appends the cause if the error's text leaves it out.
    let mut sentence = format!("{program}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
        cause = error.source();
    }
    sentence.push('\n');
    // If stderr cannot be written, the status alone reports the failure.
    io::stderr().write_all(sentence.as_bytes()).ok();
    ExitCode::FAILURE
}

/// Rust blocks of pages that belong to no crate. Doc tests compile and run them.
#[cfg(doctest)]
#[doc = include_str!("../docs/determinism.md")]
mod determinism {}

/// The README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The first page of the book.
#[cfg(doctest)]
#[doc = include_str!("../docs/start.md")]
mod start {}

/// The guides of the book.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/guides/client-server.md")]
    mod client_server {}
    #[doc = include_str!("../docs/guides/lockstep.md")]
    mod lockstep {}
    #[doc = include_str!("../docs/guides/hub.md")]
    mod hub {}
    #[doc = include_str!("../docs/guides/matchmaker.md")]
    mod matchmaker {}
    #[doc = include_str!("../docs/guides/secure.md")]
    mod secure {}
    #[doc = include_str!("../docs/guides/tune.md")]
    mod tune {}
}
