//! Counters of the hub, its store, its port and the API, as Prometheus text.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
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
