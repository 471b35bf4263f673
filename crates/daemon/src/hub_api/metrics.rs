//! Counters of the hub, its store, its port and the API, as Prometheus text.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hub::stats_store::StatsCounters;
use tickwire::stats::Page;

use super::shared::Shared;
use crate::http::error_response::ErrorResponse;

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, ErrorResponse> {
    let status = shared.status().await?;
    let mut page = Page::default();
    page.gauge("tickwire_hub_nodes", &status.nodes);
    page.gauge("tickwire_hub_players", &status.players);
    page.counters("tickwire_hub_", &status.stats);
    page.counters("tickwire_hub_kv_", &status.kv);
    page.counters("tickwire_hub_store_", &shared.hub.store_stats());
    page.counters("tickwire_hub_statistics_link_", &status.statistics);
    let statistics = shared.statistics(|view| view.counters()).await?;
    write_statistics(&mut page, &statistics);
    page.counters("tickwire_hub_storage_", &status.storage);
    page.counters("tickwire_hub_port_", &shared.hub.port_counters());
    shared.counter.write(&mut page, "tickwire_hub_http_");
    let open = shared
        .config
        .watches_max
        .saturating_sub(shared.watches.available_permits());
    page.gauge("tickwire_hub_http_watches", &open);
    page.counters("tickwire_hub_http_watches_", &shared.watch_counter.get());
    let text_type = HeaderValue::from_static("text/plain; version=0.0.4");
    Ok(([(header::CONTENT_TYPE, text_type)], page.into_text()).into_response())
}

/// Labels of [`hub::stats::Level`], finest first.
const LEVELS: [&str; 4] = ["10s", "1m", "1h", "1d"];

fn write_statistics(page: &mut Page, counters: &StatsCounters) {
    const PREFIX: &str = "tickwire_hub_statistics_";
    page.counters(PREFIX, &counters.store);
    for (name, size) in [
        ("series", counters.series),
        ("buckets", counters.buckets),
        ("memory_bytes", counters.memory_bytes),
    ] {
        page.gauge(&format!("{PREFIX}{name}"), &size);
    }
    page.gauge("tickwire_hub_statistics_raw_bytes", &counters.raw_bytes);
    let rollups = &counters.rollups;
    for (name, count) in [
        ("batches", rollups.batches),
        ("records", rollups.records),
        ("duplicates", rollups.duplicates),
        ("fenced", rollups.fenced),
        ("early", rollups.early),
        ("other", rollups.other),
        ("over_share", rollups.over_share),
    ] {
        page.counter(&format!("{PREFIX}rollup_{name}_total"), &count);
    }
    for (name, counts) in [
        ("late", rollups.late),
        ("no_room", rollups.no_room),
        ("trimmed", rollups.trimmed),
    ] {
        let name = format!("{PREFIX}rollup_{name}_total");
        let counts = LEVELS.iter().zip(counts);
        let counts = counts.map(|(level, count)| (format!("level=\"{level}\""), count.to_string()));
        page.labelled((&name, "counter"), counts);
    }
}
