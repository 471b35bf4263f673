//! `udp_proto` compared with other encrypted stacks: `benches/peers`.

use crate::comparison::Comparison;
use crate::goal::Bound::{AtLeast, AtMost, TimesLess, TimesOf};
use crate::goal::{Bound, Goal};

/// The comparison.
pub const COMPARISON: Comparison = Comparison {
    name: "udp",
    goals: &GOALS,
    shown: &[],
    // Tickwire first; the unencrypted stack and the floor last.
    stacks: &[
        OURS,
        "tickwire-woken",
        "quinn-proto",
        "quinn",
        "quinn-ticked",
        "renet",
        "enet",
        "floor",
    ],
    peer: None,
    summary: &SUMMARY,
    packages: &[
        "quinn-proto",
        "quinn",
        "renet",
        "renet_netcode",
        "rusty_enet",
        "rustls",
        "ring",
    ],
    method: "medians of {rounds} interleaved rounds, over sockets of {load_rounds}",
};

const OURS: &str = "tickwire";
/// Encrypting stacks, in memory.
const PEERS: &[&str] = &["renet", "quinn-proto"];

const CPU: &str = "cpu_ns_per_message";
const ALLOCATIONS: &str = "allocations_per_message";
const DELIVERED: &str = "delivered_fraction";

const GOALS: [Goal; 18] = [
    goal("u100", CPU, TimesLess(3.0, PEERS)),
    goal("u100", CPU, TimesOf(2.0, "floor", "u100")),
    goal("u100", ALLOCATIONS, AtMost(0.0)),
    goal("r100", CPU, TimesLess(2.8, PEERS)),
    goal("r100", ALLOCATIONS, AtMost(1.0)),
    // 1.00 when rounded to two digits.
    goal("r100", "datagrams_per_message", AtMost(1.004)),
    goal("u1000", CPU, TimesLess(2.8, PEERS)),
    goal("packed32x100", CPU, TimesLess(2.1, PEERS)),
    goal("frag64k", CPU, TimesLess(2.4, PEERS)),
    goal("load1000", DELIVERED, AtLeast(0.99)),
    goal(
        "load1000",
        "server_cpu_ns_per_message",
        TimesLess(2.6, &["quinn"]),
    ),
    goal("load3000", DELIVERED, AtLeast(0.99)),
    goal("handshake", "server_us", TimesLess(2.5, &["quinn-proto"])),
    goal(
        "refuse_no_cookie",
        "server_us",
        TimesOf(1.5, "floor", "sha256_1200"),
    ),
    goal(
        "refuse_stolen_token",
        "server_us",
        TimesOf(4.0, "floor", "sha256_1200"),
    ),
    goal("idle", "bytes_per_connection", AtMost(3_072.0)),
    goal("mpgs_goal", DELIVERED, AtLeast(0.99)),
    goal("mpgs_goal", "server_cpu_fraction", AtMost(0.05)),
];

const fn goal(case: &'static str, metric: &'static str, bound: Bound) -> Goal {
    Goal {
        id: "",
        stack: OURS,
        case,
        metric,
        bound,
    }
}

const SUMMARY: [[&str; 2]; 12] = [
    ["u100", "cpu_ns_per_message"],
    ["u1000", "cpu_ns_per_message"],
    ["packed32x100", "cpu_ns_per_message"],
    ["frag64k", "cpu_ns_per_message"],
    ["u100", "allocations_per_message"],
    ["handshake", "server_us"],
    ["refuse_no_cookie", "server_us"],
    ["refuse_stolen_token", "server_us"],
    ["load1000", "server_cpu_ns_per_message"],
    ["load3000", "server_cpu_ns_per_message"],
    ["mpgs_goal", "server_cpu_fraction"],
    ["idle", "bytes_per_connection"],
];
