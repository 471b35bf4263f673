//! A node's counters as Prometheus text.

use relay_mesh::measure::LinkReport;
use relay_mesh::{LinkView, RouteView};
use tickwire::stats::Page;

use crate::relay::running::Stats;

/// What there is to count.
pub(super) struct Counts {
    pub(super) stats: Stats,
    pub(super) links: Vec<LinkView>,
    pub(super) routes: Vec<RouteView>,
    /// Version of the document in force; 0 where there is none.
    pub(super) config_version: u64,
    pub(super) is_draining: bool,
}

/// Writes them: `tickwire_mesh_*` for frames, node and document, `tickwire_relay_tcp_*` for
/// TCP games, `tickwire_endpoint_*` for what else came to the mesh's socket, `tickwire_driver_*` for the sockets.
pub(super) fn text(counts: &Counts) -> String {
    let mut page = Page::default();
    let stats = &counts.stats;
    page.gauge("tickwire_mesh_links", &counts.links.len());
    let flows: usize = counts.routes.iter().map(|route| route.flows).sum();
    page.gauge("tickwire_mesh_flows", &flows);
    page.gauge("tickwire_mesh_config_version", &counts.config_version);
    page.gauge("tickwire_mesh_draining", &u8::from(counts.is_draining));
    page.counters("tickwire_mesh_frames_", &stats.frames);
    page.counters("tickwire_mesh_", &stats.node);
    if let Some(config) = &stats.config {
        page.counters("tickwire_mesh_config_", config);
    }
    if let Some(tcp) = &stats.tcp {
        page.gauge("tickwire_relay_tcp_connections", &tcp.connections);
        page.gauge("tickwire_relay_tcp_ports", &tcp.ports);
        page.counters("tickwire_relay_tcp_", &tcp.stats);
    }
    page.counters("tickwire_endpoint_", &stats.endpoint);
    page.counters("tickwire_driver_", &stats.driver);
    page.labelled(
        ("tickwire_mesh_link_delay_seconds", "gauge"),
        counts.links.iter().filter_map(|link| {
            let report = link.report.filter(LinkReport::is_up)?;
            let tenths = u64::from(report.delay.units());
            let label = format!("node=\"{}\"", link.node);
            Some((label, format!("{}.{:04}", tenths / 10_000, tenths % 10_000)))
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
    page.into_text()
}
