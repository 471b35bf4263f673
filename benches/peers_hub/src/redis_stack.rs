//! The cases on Redis streams. It has no request with a reply, and one subscription a channel and
//! connection, so calls and the fan-out are left out.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use redis::{AsyncConnectionConfig, AsyncTypedCommands as _, Client, TlsCertificates};

use crate::process::{Certificate, Server};
use crate::sample::{Recorder, Sample, now};
use crate::{MAILBOX_MAILS, MAILBOXES, PAYLOAD, Result};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server and the way to it.
#[derive(Debug)]
pub struct Redis {
    _server: Server,
    client: Client,
}

impl Redis {
    /// Creates a client of `server`.
    pub fn new(server: Server, certificate: Option<&Certificate>) -> Result<Self> {
        let port = server.port;
        let client = match certificate {
            None => Client::open(format!("redis://127.0.0.1:{port}/"))?,
            Some(it) => {
                let certificates = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(std::fs::read(&it.chain)?),
                };
                Client::build_with_tls(format!("rediss://localhost:{port}/"), certificates)?
            }
        };
        Ok(Self {
            _server: server,
            client,
        })
    }

    async fn connect(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let client = &self.client;
        Ok(client
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }

    /// Appends mail to streams, `window` at a time. Each is on disk when it is answered.
    pub async fn mail(&self, window: usize) -> Result<Sample> {
        let connection = self.connect().await?;
        let mut recorder = Recorder::default();
        let mut open = FuturesUnordered::new();
        let mut next = 0;
        loop {
            while open.len() < window && !recorder.is_over() {
                let mut connection = connection.clone();
                let key = format!("mail:{}", next % MAILBOXES);
                next += 1;
                open.push(async move {
                    let since = now();
                    let body = [("b", &[7_u8; PAYLOAD][..])];
                    connection.xadd(key, "*", &body).await.map(|_| since)
                });
            }
            let Some(done) = open.next().await else {
                return Ok(recorder.finish());
            };
            recorder.add(done?);
        }
    }

    /// Reads streams of 200 entries.
    pub async fn mailbox(&self) -> Result<Sample> {
        let mut connection = self.connect().await?;
        let boxes = 50;
        for mailbox in 0..boxes {
            let mut pipe = redis::pipe();
            for _ in 0..MAILBOX_MAILS {
                let body = [("b", &[7_u8; PAYLOAD][..])];
                pipe.xadd(format!("box:{mailbox}"), "*", &body).ignore();
            }
            pipe.query_async::<()>(&mut connection).await?;
        }
        let mut latencies = Vec::new();
        for mailbox in 0..boxes {
            let since = now();
            let reply: StreamRangeReply = connection
                .xrange_count(format!("box:{mailbox}"), "-", "+", MAILBOX_MAILS)
                .await?;
            assert_eq!(reply.ids.len(), MAILBOX_MAILS);
            latencies.push(since.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Sample::of(&latencies))
    }
}
