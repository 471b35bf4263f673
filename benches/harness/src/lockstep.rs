//! `lockstep` compared with ggrs and its fork: `benches/peers_lockstep`.

use crate::comparison::Comparison;
use crate::goal::Bound::{AtLeast, AtMost, Elsewhere, TimesLess};
use crate::goal::{Bound, Goal};

/// The comparison.
pub const COMPARISON: Comparison = Comparison {
    name: "lockstep",
    goals: &GOALS,
    shown: &[],
    stacks: &[SERVER, MESH, PEER, "fortress"],
    peer: Some(PEER),
    summary: &SUMMARY,
    packages: &["ggrs", "fortress-rollback"],
    method: "CPU times are medians of {rounds} interleaved rounds, all other figures are from one minute of virtual \
             time",
};

/// Tickwire with a server.
const SERVER: &str = "tickwire-server";
/// Tickwire peer to peer.
const MESH: &str = "tickwire-mesh";
/// The stack that ratios refer to.
const PEER: &str = "ggrs";

const CPU: &str = "cpu_us_per_frame";
const UP: &str = "up_bytes_per_s";
const DOWN: &str = "down_bytes_per_s";
const UP_PAYLOAD: &str = "up_payload_bytes_per_s";
const DOWN_PAYLOAD: &str = "down_payload_bytes_per_s";
const FPS: &str = "frames_per_s";
const STALLED: &str = "stalled_ms_per_s";
const IN_TIME: &str = "desync_within_150_ms";

/// The numbers are those of the design.
const GOALS: [Goal; 60] = [
    mesh("G1", "p2", CPU, TimesLess(4.0, &[PEER])),
    mesh("G1", "p4", CPU, TimesLess(6.0, &[PEER])),
    mesh("G1", "p8", CPU, TimesLess(10.0, &[PEER])),
    mesh("G1", "p16", CPU, TimesLess(20.0, &[PEER])),
    server("G2", "p8", CPU, AtMost(1.0)),
    server("G2", "p8", CPU, TimesLess(30.0, &[PEER])),
    server("G3", "p8", "server_ns_per_player_tick", AtMost(200.0)),
    server("G3", "p64", "server_ns_per_player_tick", AtMost(200.0)),
    server("G3", "p8", "server_allocations_per_tick", AtMost(0.0)),
    server("G3", "p64", "server_allocations_per_tick", AtMost(0.0)),
    server("G3", "p64", "encodes_per_tick", AtMost(1.0)),
    elsewhere(
        "G4",
        "spectators at the server, unsealed and sealed: `cargo bench --bench spectators`",
    ),
    elsewhere(
        "G5",
        "sealed players over loopback: `cargo bench --bench players`",
    ),
    // 60.0 when rounded to three digits.
    mesh("G6", "p2/lockstep-d4", FPS, AtLeast(59.95)),
    mesh("G6", "p4/lockstep-d4", FPS, AtLeast(59.95)),
    mesh("G6", "p8/lockstep-d4", FPS, AtLeast(59.95)),
    mesh("G7", "p4/lockstep-jitter-d6", FPS, AtLeast(59.9)),
    server("G8", "p8/jitter", "latency_ms", AtMost(165.0)),
    server("G8", "p8/jitter", STALLED, AtMost(0.1)),
    server("G8", "p8/jitter", "late_inputs_per_minute", AtMost(2.0)),
    elsewhere(
        "G8",
        "adaptive delay: `ls_g8_adaptive_delay_is_within_a_tenth_of_the_best_fixed_one`",
    ),
    server("G9", "p8/loss5", STALLED, AtMost(0.5)),
    server("G9", "p8/loss5", "p999_stall_ms", AtMost(34.0)),
    mesh("G9", "p2/lockstep-loss5-d8", STALLED, AtMost(0.5)),
    mesh("G9", "p4/lockstep-loss5-d8", STALLED, AtMost(0.5)),
    mesh("G9", "p8/lockstep-loss5-d8", STALLED, AtMost(0.5)),
    server("G10", "p8", UP_PAYLOAD, AtMost(700.0)),
    server("G10", "p8", DOWN_PAYLOAD, AtMost(1_600.0)),
    server("G10", "p8", UP, AtMost(4_300.0)),
    server("G10", "p8", DOWN, AtMost(5_000.0)),
    server("G10", "p8", UP, TimesLess(14.0, &[PEER])),
    server("G10", "p8", DOWN, TimesLess(14.0, &[PEER])),
    mesh("G10", "p8", UP_PAYLOAD, AtMost(15_000.0)),
    mesh("G10", "p8", "up_unsealed_bytes_per_s", AtMost(30_000.0)),
    // The design's number is without encryption, which ggrs does not have; this one includes it.
    mesh("G10", "p8", UP, AtMost(30_000.0)),
    server("G11", "p8/stick-100", UP_PAYLOAD, AtMost(2_000.0)),
    server("G11", "p8/stick-100", DOWN_PAYLOAD, AtMost(9_000.0)),
    server("G12", "p64", DOWN_PAYLOAD, AtMost(10_000.0)),
    server("G12", "p64", "longest_datagram_bytes", AtMost(1_200.0)),
    server("G13", "p4/outage", "others_stalled_ms", AtMost(0.0)),
    // A round trip and two ticks, observed at the next turn.
    server("G13", "p4/outage", "caught_up_ms", AtMost(137.4)),
    elsewhere(
        "G14",
        "late join: `ls_g14_a_mebibyte_at_10_mbit_is_in_step_in_1_4_s_and_stalls_no_player`",
    ),
    server("G15", "p2/desync", "desync_p50_ms", AtMost(150.0)),
    server("G15", "p4/desync", "desync_p50_ms", AtMost(150.0)),
    mesh("G15", "p2/desync", "desync_p50_ms", AtMost(150.0)),
    mesh("G15", "p4/desync", "desync_p50_ms", AtMost(150.0)),
    // The goals above cover the median; this one covers all desyncs.
    server("G15", "p2/desync", IN_TIME, AtLeast(1.0)),
    server("G15", "p4/desync", IN_TIME, AtLeast(1.0)),
    mesh("G15", "p2/desync", IN_TIME, AtLeast(1.0)),
    mesh("G15", "p4/desync", IN_TIME, AtLeast(1.0)),
    elsewhere(
        "G15",
        "tick and section: `sim_ls_g15_tick_and_section_are_reported_within_two_more_round_trips`",
    ),
    // Two round trips, and the 99th of 100 starts.
    server("G16", "p4/start", "first_step_p50_ms", AtMost(200.0)),
    server("G16", "p4/start", "first_step_p99_ms", AtMost(350.0)),
    mesh("G16", "p4/start", "first_step_p99_ms", AtMost(350.0)),
    mesh("G17", "p8/sync-test", CPU, AtMost(0.8)),
    elsewhere(
        "G18",
        "save policy: `ls_g18_auto_costs_at_most_a_twentieth_more_than_the_better_policy`",
    ),
    elsewhere(
        "G19",
        "length and seeks: `ls_g19_an_hour_of_eight_pads_takes_at_most_a_megabyte`",
    ),
    elsewhere("G19", "time to verify: `cargo bench --bench replay`"),
    elsewhere("G20", "TCP clients: `cargo bench --bench broadcast`"),
    elsewhere("G21", "seeds: `cargo xtask sim --crate lockstep` says"),
];

const fn server(id: &'static str, case: &'static str, metric: &'static str, b: Bound) -> Goal {
    goal(id, SERVER, [case, metric], b)
}

const fn mesh(id: &'static str, case: &'static str, metric: &'static str, b: Bound) -> Goal {
    goal(id, MESH, [case, metric], b)
}

const fn elsewhere(id: &'static str, place: &'static str) -> Goal {
    goal(id, "", ["", ""], Elsewhere(place))
}

const fn goal(
    id: &'static str,
    stack: &'static str,
    [case, metric]: [&'static str; 2],
    bound: Bound,
) -> Goal {
    Goal {
        id,
        stack,
        case,
        metric,
        bound,
    }
}

const SUMMARY: [[&str; 2]; 13] = [
    ["p2", "cpu_us_per_frame"],
    ["p4", "cpu_us_per_frame"],
    ["p8", "cpu_us_per_frame"],
    ["p16", "cpu_us_per_frame"],
    ["p8/sync-test", "cpu_us_per_frame"],
    ["p8", "server_ns_per_player_tick"],
    ["p8", "up_bytes_per_s"],
    ["p8", "down_bytes_per_s"],
    ["p8", "latency_ms"],
    ["p8/client-window", "latency_ms"],
    ["p8/loss5", "stalled_ms_per_s"],
    ["p4/desync", "desync_p50_ms"],
    ["p4/start", "first_step_p50_ms"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_of_the_design_has_a_row() {
        for number in 1..=21 {
            let id = format!("G{number}");
            assert!(GOALS.iter().any(|goal| goal.id == id), "{id}");
        }
    }
}
