//! A node's counters in Prometheus text format.

use relay_mesh::cost::Cost;
use relay_mesh::measure::LinkReport;
use relay_mesh::{GameEdgeView, LinkView, RouteView};
use servicer::Counters;
use tickwire::stats::Page;

use super::render::protocol_name;
use crate::relay::client::Stats;

pub(super) struct Counts {
    pub(super) stats: Stats,
    pub(super) shards: Vec<Counters>,
    pub(super) links: Vec<LinkView>,
    pub(super) routes: Vec<RouteView>,
    pub(super) games: Vec<GameEdgeView>,
    /// Version of the document in force; 0 for none.
    pub(super) config_version: u64,
    pub(super) is_draining: bool,
}

/// Prints them: `tickwire_mesh_*` for frames, node, link state and document, `tickwire_relay_tcp_*`
/// for TCP games, `tickwire_endpoint_*` for other datagrams at the mesh socket, `tickwire_driver_*`
/// for the sockets.
pub(super) fn text(counts: &Counts) -> String {
    let mut page = Page::default();
    let stats = &counts.stats;
    page.gauge("tickwire_mesh_links", &counts.links.len());
    let flows: usize = counts.routes.iter().map(|route| route.flows).sum();
    page.gauge("tickwire_mesh_flows", &flows);
    page.gauge("tickwire_mesh_labels", &stats.labels);
    page.gauge("tickwire_mesh_config_version", &counts.config_version);
    page.gauge("tickwire_mesh_draining", &u8::from(counts.is_draining));
    page.counters("tickwire_mesh_frames_", &stats.frames);
    page.counters("tickwire_mesh_", &stats.node);
    page.counters("tickwire_mesh_records_", &stats.records);
    page.counters("tickwire_mesh_gossip_", &stats.gossip);
    if let Some(config) = &stats.config {
        page.counters("tickwire_mesh_config_", config);
    }
    if let Some(tcp) = &stats.tcp {
        page.gauge("tickwire_relay_tcp_connections", &tcp.connections);
        page.gauge("tickwire_relay_tcp_ports", &tcp.ports);
        page.counters("tickwire_relay_tcp_", &tcp.stats);
    }
    if let Some(tunnels) = &stats.tunnels {
        page.counters("tickwire_mesh_tunnel_", tunnels);
    }
    page.counters("tickwire_endpoint_", &stats.endpoint);
    page.counters("tickwire_driver_", &stats.driver);
    page.counters("tickwire_mesh_strays_", &stats.strays);
    page.labelled(
        ("tickwire_mesh_shard_datagrams_in_total", "counter"),
        (0..).zip(&counts.shards).map(|(index, driver): (u8, _)| {
            let label = format!("shard=\"{index}\"");
            (label, driver.datagrams_in.to_string())
        }),
    );
    page.labelled(
        ("tickwire_mesh_shard_dropped_in_full_total", "counter"),
        (0..).zip(&counts.shards).map(|(index, driver): (u8, _)| {
            let label = format!("shard=\"{index}\"");
            (label, driver.dropped_in_full.to_string())
        }),
    );
    add_links(&mut page, counts);
    page.labelled(
        ("tickwire_mesh_game_edge_reached", "gauge"),
        counts.games.iter().map(|edge| {
            let reached = u8::from(edge.cost.is_some());
            (edge_label(edge), reached.to_string())
        }),
    );
    page.labelled(
        ("tickwire_mesh_game_edge_delay_seconds", "gauge"),
        counts.games.iter().filter_map(|edge| {
            let cost = edge.cost?;
            Some((edge_label(edge), seconds(cost)))
        }),
    );
    page.into_text()
}

fn add_links(page: &mut Page, counts: &Counts) {
    page.labelled(
        ("tickwire_mesh_link_delay_seconds", "gauge"),
        counts.links.iter().filter_map(|link| {
            let report = link.report.filter(LinkReport::is_up)?;
            let label = format!("node=\"{}\"", link.node);
            Some((label, seconds(report.delay)))
        }),
    );
    page.labelled(
        ("tickwire_mesh_link_loss_ratio", "gauge"),
        counts.links.iter().filter_map(|link| {
            let ppm = link.report?.loss.loss().ppm();
            let label = format!("node=\"{}\"", link.node);
            Some((label, format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)))
        }),
    );
    page.labelled(
        ("tickwire_mesh_link_detour", "gauge"),
        counts.links.iter().filter_map(|link| {
            let label = format!("node=\"{}\",relay=\"{}\"", link.node, link.detour?);
            Some((label, "1".to_owned()))
        }),
    );
}

fn edge_label(edge: &GameEdgeView) -> String {
    let (game, exit) = (escaped(&edge.game), edge.exit);
    let protocol = protocol_name(edge.protocol);
    format!("game=\"{game}\",protocol=\"{protocol}\",exit=\"{exit}\"")
}

/// Escapes a label's value, since game names are arbitrary.
fn escaped(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"");
    name.replace('\n', "\\n")
}

fn seconds(cost: Cost) -> String {
    let tenths = u64::from(cost.units());
    format!("{}.{:04}", tenths / 10_000, tenths % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_games_name_is_escaped_in_labels() {
        assert_eq!(escaped("doom"), "doom");
        assert_eq!(escaped("a\"}\n1\\"), r#"a\"}\n1\\"#);
        assert_eq!(seconds(Cost::from_units(12_345)), "1.2345");
    }
}
