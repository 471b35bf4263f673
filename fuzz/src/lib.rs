#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a broken promise ends a fuzz function by a panic: that is what a fuzzer sees"
)]

pub mod crypto_text;
pub mod crypto_token;
pub mod hub_join_file;
pub mod hub_kv;
pub mod hub_log;
pub mod hub_record;
pub mod hub_stats;
pub mod hub_switch;
pub mod lockstep_client;
pub mod lockstep_datagram;
pub mod lockstep_fan;
pub mod lockstep_hosted;
pub mod lockstep_mesh;
pub mod lockstep_replay;
pub mod lockstep_server;
pub mod lockstep_state;
pub mod matchmaker_calls;
pub mod matchmaker_record;
pub mod mesh_config;
pub mod mesh_frame;
pub mod mesh_message;
pub mod proxy_header;
pub mod snapshot_chunk;
pub mod tcp_record;
pub mod tunnel_open;
pub mod udp_ack;
pub mod udp_codec;
pub mod udp_endpoint;
pub mod udp_handshake;
pub mod udp_inbox;
pub mod udp_packet;
pub mod udp_session;
pub mod udp_talk;
pub mod wire_codec;
pub mod wire_id;

/// A function which accepts any bytes and panics only if a guarantee is broken.
pub type Function = fn(&[u8]);

/// Every function, by the name of its corpus folder and libFuzzer target.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("wire_reader", wire_codec::reader),
    ("wire_node_id", wire_id::node_id),
    ("crypto_client_grant", crypto_text::client_grant),
    ("crypto_identity_pem", crypto_text::identity_pem),
    ("crypto_public_key", crypto_text::public_key),
    ("crypto_token_open", crypto_token::open),
    ("crypto_token_body", crypto_token::body),
    ("hub_to_hub", hub_record::to_hub),
    ("hub_to_node", hub_record::to_node),
    ("hub_join_file", hub_join_file::parse),
    ("hub_kv", hub_kv::ranges),
    ("hub_log_record", hub_log::record),
    ("hub_recovery", hub_log::recovery),
    ("hub_stats_batch", hub_stats::batch),
    ("hub_stats_query", hub_stats::query),
    ("hub_stats_rows", hub_stats::rows),
    ("hub_stats_answer", hub_stats::answer),
    ("hub_stats_store", hub_stats::store),
    ("hub_switch", hub_switch::records),
    ("lockstep_up", lockstep_datagram::up),
    ("lockstep_down", lockstep_datagram::down),
    ("lockstep_client", lockstep_client::script),
    ("lockstep_server", lockstep_server::script),
    ("lockstep_replay", lockstep_replay::file),
    ("lockstep_hosted", lockstep_hosted::datagram),
    ("lockstep_mesh", lockstep_mesh::datagram),
    ("lockstep_state", lockstep_state::script),
    ("lockstep_fan", lockstep_fan::script),
    ("matchmaker_assign", matchmaker_record::assign),
    ("matchmaker_reply", matchmaker_record::reply),
    ("matchmaker_verdict", matchmaker_record::verdict),
    ("matchmaker_calls", matchmaker_calls::script),
    ("mesh_hop_header", mesh_frame::hop_header),
    ("mesh_trunk", mesh_frame::trunk),
    ("mesh_route", mesh_message::route),
    ("mesh_flow", mesh_message::flow),
    ("mesh_control", mesh_message::control),
    ("mesh_node_record", mesh_message::node_record),
    ("mesh_link_record", mesh_message::link_record),
    ("proxy_header", proxy_header::header),
    ("signed_config", mesh_config::offered),
    ("signed_config_text", mesh_config::text),
    ("signed_config_message", mesh_config::message),
    ("snapshot_chunk", snapshot_chunk::script),
    ("tcp_record", tcp_record::stream),
    ("tunnel_open", tunnel_open::stream),
    ("udp_hello", udp_handshake::hello),
    ("udp_accept", udp_handshake::accept),
    ("udp_replies", udp_handshake::replies),
    ("udp_params", udp_handshake::params),
    ("udp_packet_header", udp_packet::header),
    ("udp_frames", udp_packet::frames),
    ("udp_ack_apply", udp_ack::apply),
    ("udp_inbox", udp_inbox::apply),
    ("udp_first_bytes", udp_endpoint::first_bytes),
    ("udp_pair", udp_talk::pair),
    ("udp_session", udp_session::plaintexts),
    ("udp_codec", udp_codec::typed),
];

/// Returns the function called `name`.
///
/// # Panics
///
/// If there is no such function.
#[must_use]
pub fn function(name: &str) -> Function {
    match FUNCTIONS.iter().find(|(known, _)| *known == name) {
        Some((_, function)) => *function,
        None => panic!("no fuzz function is called {name}"),
    }
}
