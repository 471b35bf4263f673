//! Counts how often a check reached the points of the contract.

use std::collections::BTreeMap;

use super::Limits;

/// Counts of all runs of a check. A point that was never reached was not checked, so
/// [`check_contract`](super::check_contract) fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// Inputs from the network, and completions.
    pub inputs: u64,
    /// Hostile inputs, including floods.
    pub hostile: u64,
    /// Datagrams or records that machines sent.
    pub sent: u64,
    /// Commands that machines returned.
    pub commands: u64,
    /// Events that machines returned.
    pub events: u64,
    /// Calls of `handle_timeout` at the deadline.
    pub timeouts: u64,
    /// Calls of `handle_timeout` before the deadline.
    pub early_timeouts: u64,
    /// Polls of a drained machine.
    pub idle_polls: u64,
    /// Calls with an earlier `now`.
    pub late_calls: u64,
    /// Commands that were completed.
    pub completions: u64,
    /// Stray completions.
    pub strays: u64,
    /// Commands that were never completed.
    pub unanswered: u64,
    /// Goals of the subject's script, and the runs that reached them.
    own: BTreeMap<&'static str, u64>,
}

impl Reached {
    /// Notes how often this run reached a goal of the script. At least one run of a check must.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.own.entry(what).or_default() += u64::from(times > 0);
    }

    /// Adds what another run reached.
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            inputs,
            hostile,
            sent,
            commands,
            events,
            timeouts,
            early_timeouts,
            idle_polls,
            late_calls,
            completions,
            strays,
            unanswered,
            own,
        } = other;
        self.inputs += inputs;
        self.hostile += hostile;
        self.sent += sent;
        self.commands += commands;
        self.events += events;
        self.timeouts += timeouts;
        self.early_timeouts += early_timeouts;
        self.idle_polls += idle_polls;
        self.late_calls += late_calls;
        self.completions += completions;
        self.strays += strays;
        self.unanswered += unanswered;
        for (what, runs) in own {
            *self.own.entry(what).or_default() += runs;
        }
    }

    /// Returns the points that were never reached. Completions are not required of a machine whose
    /// commands have none.
    pub(super) fn missing(&self, limits: &Limits) -> Vec<&'static str> {
        let is_answered = self.completions > 0;
        let own = self.own.iter().map(|(what, runs)| (*what, true, *runs));
        let points = [
            ("no input", true, self.inputs),
            ("no hostile input", true, self.hostile),
            ("nothing sent", true, self.sent),
            ("no timeout", true, self.timeouts),
            ("no early timeout", true, self.early_timeouts),
            ("no idle poll", true, self.idle_polls),
            ("no late clock", limits.late_clock, self.late_calls),
            ("no stray completion", is_answered, self.strays),
            ("no command left unanswered", is_answered, self.unanswered),
        ];
        points
            .into_iter()
            .chain(own)
            .filter(|(_, is_due, count)| *is_due && *count == 0)
            .map(|(what, _, _)| what)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Reached = Reached {
        own: BTreeMap::new(),
        inputs: 1,
        hostile: 1,
        sent: 1,
        commands: 1,
        events: 1,
        timeouts: 1,
        early_timeouts: 1,
        idle_polls: 1,
        late_calls: 1,
        completions: 1,
        strays: 1,
        unanswered: 1,
    };

    const WITH: Limits = Limits {
        late_clock: true,
        ..Limits::new(0)
    };
    const WITHOUT: Limits = Limits {
        late_clock: false,
        ..WITH
    };

    #[test]
    fn a_point_that_was_never_come_to_is_named() {
        assert!(ALL.missing(&WITH).is_empty());
        let late = Reached {
            late_calls: 0,
            ..ALL
        };
        assert_eq!(late.missing(&WITH), ["no late clock"]);
        assert!(
            late.missing(&WITHOUT).is_empty(),
            "debug assertions forbid it"
        );
        let silent = Reached {
            strays: 0,
            unanswered: 0,
            ..ALL
        };
        assert_eq!(silent.missing(&WITH).len(), 2);
        let none = Reached {
            completions: 0,
            ..silent
        };
        assert!(none.missing(&WITH).is_empty(), "no commands, no answers");
        assert_eq!(Reached::default().missing(&WITH).len(), 7);
    }

    #[test]
    fn runs_add_up() {
        let mut two = ALL;
        two.note("match", 0);
        two.note("leave", 0);
        let mut other = ALL;
        other.note("match", 9);
        two.add(other);
        assert_eq!((two.inputs, two.unanswered), (2, 2));
        assert_eq!(two.missing(&WITH), ["leave"]);
        let mut one = Reached::default();
        one.add(ALL);
        assert_eq!(one, ALL);
    }
}
