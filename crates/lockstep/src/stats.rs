//! Counters: what machines dropped, and how much they did.

use core::time::Duration;

use crate::stepper::StepAction;

/// What a [`MatchServer`](crate::MatchServer) counted; none of it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Ticks closed.
    pub ticks_closed: u64,
    /// Of these, how many waited for players past their time.
    pub ticks_delayed: u64,
    /// And how many were longer for somebody whose simulation did not keep up.
    pub ticks_stretched: u64,
    /// Bundles encoded: one a tick, however many clients there are.
    pub bundles_encoded: u64,
    /// Bundles put into datagrams, copies included.
    pub bundles_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams that were filled with old ticks for a client behind.
    pub catch_up_datagrams: u64,
    /// Inputs filled in for players that hold their seat.
    pub inputs_substituted: u64,
    /// Inputs that came after their tick was closed.
    pub inputs_late: u64,
    /// Inputs for ticks too far ahead.
    pub inputs_early: u64,
    /// Inputs told before their ticks were closed, each once however many clients there are.
    pub inputs_forwarded: u64,
    /// Players' state hashes that were compared, with the server's own or with other players'.
    pub hashes_compared: u64,
    /// Players' state hashes that were waited for and did not come in time.
    pub hashes_missing: u64,
    /// State hashes that were of no tick that could be compared.
    pub hashes_refused: u64,
    /// Questions sent about where players began to differ, repetitions and word of the end
    /// included.
    pub bisect_questions: u64,
    /// Answers to them that counted.
    pub bisect_answers: u64,
    /// Answers that nobody asked for, or not any more, or that contradict what was reported.
    pub bisect_refused: u64,
    /// Times the clock was set back because the process had been paused.
    pub pauses: u64,
    /// Datagrams dropped: not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: from nobody who plays.
    pub dropped_unknown_peer: u64,
    /// Datagrams whose acknowledgement lies outside the chain.
    pub dropped_ack: u64,
    /// Datagrams whose inputs are coded against one that is gone.
    pub dropped_reference: u64,
    /// What spectators were sent, and what they said.
    pub spectators: SpectatorStats,
}

/// What was counted of those who watch; none of it ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpectatorStats {
    /// Datagrams with turns.
    pub turns_sent: u64,
    /// Datagrams that were filled with old ticks for one behind.
    pub catch_up_datagrams: u64,
    /// Snapshots that one began to get.
    pub snapshots_begun: u64,
    /// Datagrams dropped: not of this format, or nothing that one says who watches.
    pub dropped_malformed: u64,
    /// Datagrams whose acknowledgement lies outside what was shown.
    pub dropped_ack: u64,
    /// Datagrams whose inputs were dropped: who watches does not play.
    pub dropped_inputs: u64,
}

/// What a [`SpectatorRelay`](crate::SpectatorRelay) counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpectatorRelayStats {
    /// Ticks passed on.
    pub ticks: u64,
    /// Bundles that arrived and were there already.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Snapshots that came.
    pub snapshots: u64,
    /// Datagrams sent, both ways.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams dropped: from the server, and not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: from nobody who watches here.
    pub dropped_unknown_peer: u64,
    /// Datagrams whose numbers lie outside every window.
    pub dropped_window: u64,
    /// What children were sent, and what they said.
    pub children: SpectatorStats,
}

/// What a [`ClientPeer`](crate::ClientPeer) counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Closed ticks given to the game, with rollback or as turns.
    pub turns: u64,
    /// Steps that [`ClientPeer::next_step`](crate::ClientPeer::next_step) asked for with rollback:
    /// predicted ones, last ones, and those made again.
    pub steps: u64,
    /// Saves that it asked for.
    pub saves: u64,
    /// Times that it went back.
    pub loads: u64,
    /// Inputs stamped.
    pub inputs: u64,
    /// Inputs that the server filled in.
    pub substituted: u64,
    /// Bundles that arrived and were there already.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Ticks ahead for which inputs are stamped now.
    pub input_delay: u8,
    /// How long turns are held back now.
    pub playout: Duration,
    /// Answers sent about where states began to differ.
    pub bisect_answers: u64,
    /// Questions about it that were dropped because others waited.
    pub bisect_dropped: u64,
    /// Times the tick clock jumped by more than 15 ticks.
    pub clock_jumps: u64,
    /// Datagrams dropped: not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: not from the server.
    pub dropped_unknown_peer: u64,
    /// Datagrams whose numbers lie outside every window.
    pub dropped_window: u64,
    /// How long before its tick's close the newest input arrived, in quarter ticks, as the server
    /// said last; `None` until it does.
    pub slack_quarter_ticks: Option<i8>,
}

impl ClientStats {
    /// Counts what the game was asked for.
    pub(crate) const fn on_step(&mut self, next: StepAction) {
        let count = match next {
            StepAction::Save(_) => &mut self.saves,
            StepAction::Load(_) => &mut self.loads,
            StepAction::Advance { .. } => &mut self.steps,
            StepAction::Settled(_) => return,
        };
        *count = count.saturating_add(1);
    }
}
