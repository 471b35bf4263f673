//! `tickwire hub purge`.

use clap::Args;
use serde_json::{Value, json};
use wire::NodeId;

use super::super::print_line;
use super::request::ApiArgs;
use crate::exit::Failure;

/// Options of `hub purge`.
#[derive(Args, Clone, Debug)]
pub struct PurgeMail {
    #[command(flatten)]
    pub(super) api: ApiArgs,
    /// Node id of the sender.
    #[arg(long, value_name = "NODE")]
    from: NodeId,
    /// Only counts the mails.
    #[arg(long)]
    dry_run: bool,
}

impl PurgeMail {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let method = if self.dry_run { "GET" } else { "DELETE" };
        let line = format!("{method} /v1/senders/{}/mail", self.from);
        let answer = self.api.json(&line, None)?;
        let number = |field| {
            answer
                .get(field)
                .and_then(Value::as_u64)
                .unwrap_or_default()
        };
        let (mails, bytes) = (number("mails"), number("bytes"));
        if self.api.json {
            let is_deleted = !self.dry_run;
            let line = json!({"schema": 1, "mails": mails, "bytes": bytes, "deleted": is_deleted});
            return print_line(&line.to_string());
        }
        let verb = if self.dry_run { "found" } else { "deleted" };
        print_line(&format!("{verb} {mails} mails, {bytes} bytes"))
    }
}
