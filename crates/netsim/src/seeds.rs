//! Runs a test under many seeds, and prints how to repeat a failure.

use core::fmt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use wire::Seed;

use crate::trace;

/// Runs `body` under `count` seeds, numbered from 0, or under the seeds that the environment
/// selects.
///
/// | variable | meaning |
/// |---|---|
/// | `SEED` | this seed alone |
/// | `SEEDS` | how many, instead of `count` |
/// | `FROM` | the first, instead of 0 |
///
/// Names of seeded simulations start with `sim_`, so that `cargo xtask sim` finds them. On success,
/// prints the number of seeds to standard error. On the first failure, prints the newest lines of
/// the world's [`Trace`](crate::Trace) and one command that repeats it:
///
/// ```text
/// SEED=17 cargo test -p tickwire-udp-proto --test it world::sim_lossy_exchange -- --exact --nocapture
/// ```
///
/// # Panics
///
/// If `body` panics or returns an error, or if a variable is not a number.
pub fn for_each_seed<R: Outcome>(site: &TestSite, count: u64, mut body: impl FnMut(Seed) -> R) {
    let (first, count) = plan(count, |name| std::env::var(name).ok());
    for passed in 0..count {
        let number = first.wrapping_add(passed);
        drop(trace::take_newest());
        let Err(failure) = run(&mut body, number) else {
            continue;
        };
        for line in trace::take_newest() {
            eprintln!("{line}");
        }
        eprintln!("{passed} seeds held, then");
        eprintln!("{}", site.replay(number));
        resume_unwind(failure);
    }
    eprintln!("{}: {count} seeds done, from {first}", site.path);
}

/// Result of a test body: `()`, or a `Result`.
pub trait Outcome {
    /// Returns the error, if any.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Debug> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| format!("{error:?}"))
    }
}

/// Location of a test: what `cargo test` needs to run it alone. Created by
/// [`test_site!`](crate::test_site).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestSite {
    package: &'static str,
    /// Test binary; `None` for the unit tests of a library.
    binary: Option<&'static str>,
    /// Modules and function, without the crate.
    path: &'static str,
}

impl TestSite {
    /// Creates the site from the type name of `marker`, an empty function inside the test.
    ///
    /// `integration` is Cargo's `CARGO_TARGET_TMPDIR`, which is set only for integration tests.
    #[must_use]
    pub fn of<F>(_marker: F, package: &'static str, integration: Option<&'static str>) -> Self {
        let name = core::any::type_name::<F>();
        let (name, _) = name.rsplit_once("::").unwrap_or((name, ""));
        let name = name.split("::{{closure}}").next().unwrap_or(name);
        let (binary, path) = name.split_once("::").unwrap_or((name, ""));
        Self {
            package,
            binary: integration.map(|_| binary),
            path,
        }
    }

    /// Returns the command that runs this test under one seed.
    #[must_use]
    pub fn replay(&self, number: u64) -> String {
        let target = self
            .binary
            .map_or_else(|| "--lib".to_owned(), |name| format!("--test {name}"));
        format!(
            "SEED={number} cargo test -p {} {target} {} -- --exact --nocapture",
            self.package, self.path
        )
    }
}

/// Returns the [`TestSite`](crate::TestSite) of the enclosing test function.
#[macro_export]
macro_rules! test_site {
    () => {{
        const fn here() {}
        $crate::TestSite::of(
            here,
            ::core::env!("CARGO_PKG_NAME"),
            ::core::option_env!("CARGO_TARGET_TMPDIR"),
        )
    }};
}

/// Runs one seed; a failure is returned as the payload of a panic.
fn run<R: Outcome>(
    body: &mut impl FnMut(Seed) -> R,
    number: u64,
) -> Result<(), Box<dyn Any + Send>> {
    let seed = Seed::from_number(number);
    match catch_unwind(AssertUnwindSafe(|| body(seed).failure())) {
        Ok(None) => Ok(()),
        Ok(Some(error)) => {
            eprintln!("seed {number}: {error}");
            Err(Box::new(error))
        }
        Err(panic) => Err(panic),
    }
}

#[expect(clippy::panic, reason = "whoever set the variable reads this")]
fn plan(count: u64, variable: impl Fn(&str) -> Option<String>) -> (u64, u64) {
    let number = |name: &str| {
        variable(name).map(|text| match text.parse::<u64>() {
            Ok(number) => number,
            Err(error) => panic!("{name}={text}: {error}"),
        })
    };
    if let Some(seed) = number("SEED") {
        return (seed, 1);
    }
    let first = number("FROM").unwrap_or(0);
    (first, number("SEEDS").unwrap_or(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_the_seeds_that_the_environment_names() {
        let of = |pairs: &'static [(&str, &str)]| {
            plan(10, move |name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), (0, 10));
        assert_eq!(of(&[("SEEDS", "3"), ("FROM", "5")]), (5, 3));
        assert_eq!(of(&[("SEED", "17"), ("SEEDS", "3")]), (17, 1));
    }

    #[test]
    #[should_panic(expected = "SEEDS=many")]
    fn a_variable_that_is_no_number_is_refused() {
        plan(1, |name| (name == "SEEDS").then(|| "many".to_owned()));
    }

    #[test]
    fn the_replay_command_runs_this_very_test() {
        assert_eq!(
            crate::test_site!().replay(17),
            "SEED=17 cargo test -p tickwire-netsim --lib \
             seeds::tests::the_replay_command_runs_this_very_test -- --exact --nocapture"
        );
    }

    #[test]
    fn an_error_and_a_panic_both_fail_their_seed() {
        assert!(run(&mut |_| (), 1).is_ok());
        assert!(run(&mut |_| Err::<(), _>("no"), 1).is_err());
        assert!(run(&mut |_| -> () { panic!("expected here") }, 1).is_err());
    }
}
