//! Goals that have no figure: tests of the suite show them.

/// What tests show of a goal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Its number in the design.
    pub(super) id: &'static str,
    /// What holds.
    pub(super) what: &'static str,
    /// Test functions of `relay_mesh` and of the program.
    pub(super) tests: &'static [&'static str],
}

/// All of them.
pub(super) const SHOWN: [Shown; 14] = [
    Shown::new(
        "F6",
        "an exit has a socket for each flow, and none left when flows are over",
        &["a_silent_flow_ends_and_its_socket_is_closed"],
    ),
    Shown::new(
        "F7",
        "nothing is allocated for a frame: sealed, by tag only, in trunks, by shards",
        &[
            "mesh_f7_a_relay_allocates_nothing_for_a_frame",
            "mesh_f7_a_relay_allocates_nothing_for_a_tag_only_frame",
            "mesh_f7_a_relay_allocates_nothing_for_a_trunk",
            "mesh_f7_a_forwarder_allocates_nothing_for_a_frame",
        ],
    ),
    Shown::new(
        "R4",
        "routes of up to three relays are the exact optimum",
        &["mesh_r4_routes_equal_the_exact_optimum_ties_included"],
    ),
    Shown::new(
        "M7",
        "when an exit dies, a session of udp_proto lives on by the next; where there is none, flows end with a reason",
        &[
            "sim_mesh_m7_a_session_of_udp_proto_lives_on_by_the_next_exit",
            "mesh_m7_the_death_of_an_exit_ends_its_flows_with_a_reason",
        ],
    ),
    Shown::new(
        "G3",
        "one liar loses no route and removes no node",
        &[
            "mesh_g3_one_liar_loses_no_route_and_removes_no_node",
            "sim_mesh_g3_a_liar_s_deltas_take_no_link_down_and_are_found_out",
        ],
    ),
    Shown::new(
        "A1",
        "hostile frames and requests are dropped, each kind with its counter, and not answered",
        &[
            "mesh_a1_each_kind_of_hostile_frame_has_its_counter_and_no_answer",
            "mesh_a1_strangers_get_no_byte_for_hop_frames",
            "mesh_a1_truncated_oversize_and_unknown_frames_are_refused",
            "mesh_a1_requests_beyond_policy_are_refused",
            "mesh_a1_pgx6_pgd_p6_a_looped_route_passes_a_frame_no_further_than_a_route_can_be",
        ],
    ),
    Shown::new(
        "A1",
        "a forwarded game answers forged sources within its ration",
        &["pgx11_forged_players_get_their_ration_and_no_more"],
    ),
    Shown::new(
        "A2",
        "no old document is taken, after a restart neither",
        &["pgx7_mesh_a2_any_old_config_is_refused_after_restart_too"],
    ),
    Shown::new(
        "A3",
        "a relay can neither read nor change what it carries, nor see the player's address",
        &[
            "a_relay_sees_neither_payload_nor_player",
            "mesh_a4_no_changed_byte_is_delivered",
            "pg3_pgx1_mesh_a5_hosts_captures_hold_no_payload_no_player_and_no_number_twice",
        ],
    ),
    Shown::new(
        "A4",
        "numbers pushed ahead, forged or changed touch no other label and deliver nothing",
        &[
            "mesh_a4_numbers_pushed_ahead_on_one_label_touch_no_other_and_no_forged_one_moves_a_window",
            "mesh_a4_forged_numbers_do_not_move_the_window",
            "mesh_a4_no_changed_byte_is_delivered",
        ],
    ),
    Shown::new(
        "A5",
        "no key seals a number twice, over copies, moves and restarts",
        &[
            "sim_mesh_a5_no_nonce_comes_twice_over_moves_and_restarts",
            "mesh_a5_a_player_who_comes_back_after_all_was_idle_meets_no_old_nonce",
            "mesh_a5_shards_that_seal_for_one_label_share_no_nonce_and_open_each_others_not",
        ],
    ),
    Shown::new(
        "C1",
        "headers of the PROXY protocol are read as written, bounded, from trusted proxies alone",
        &[
            "mesh_c1_a_line_that_is_written_is_read",
            "mesh_c1_a_block_that_is_written_is_read",
            "mesh_c1_any_bytes_are_read_or_refused_and_nothing_behind_them",
            "mesh_c1_a_line_has_at_most_107_bytes",
            "mesh_c1_the_length_ends_at_65535_and_at_the_callers_limit",
            "mesh_c1_only_trusted_proxies_are_believed",
        ],
    ),
    Shown::new(
        "C2",
        "words of a TCP game that two paths carry wait for no packet that one loses",
        &["sim_mesh_c2_words_of_a_stream_that_two_paths_carry_wait_for_no_lost_packet"],
    ),
    Shown::new(
        "C2",
        "beside direct TCP on hosts of their own: not run here; it needs the right to make \
         network namespaces, and its figure stands under \"TCP games over the mesh\"",
        &["mesh_c2_words_over_two_relays_and_words_over_a_direct_line_that_loses_as_much"],
    ),
];

impl Shown {
    const fn new(id: &'static str, what: &'static str, tests: &'static [&'static str]) -> Self {
        Self { id, what, tests }
    }

    /// One line for a person.
    pub(super) fn line(&self) -> String {
        let Self { id, what, tests } = self;
        format!("{:<9} {id} {what}: {}", "by tests", tests.join(", "))
    }

    /// As the table has it.
    pub(super) fn cells(&self) -> String {
        let Self { id, what, tests } = self;
        format!("| {id} | {what} | `{}` |", tests.join("`, `"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Appends the Rust files below a folder.
    fn read(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, text);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn tests_that_show_a_goal_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut text = String::new();
        for part in ["relay_mesh/src", "relay_mesh/tests", "cli/tests"] {
            read(&root.join(part), &mut text);
        }
        for test in SHOWN.iter().flat_map(|shown| shown.tests) {
            assert!(text.contains(&format!("fn {test}(")), "{test}");
        }
    }

    #[test]
    fn a_goal_names_its_tests() {
        let shown = Shown::new("A9", "it holds", &["one", "other"]);
        assert_eq!(shown.line(), "by tests  A9 it holds: one, other");
        assert_eq!(shown.cells(), "| A9 | it holds | `one`, `other` |");
    }
}
