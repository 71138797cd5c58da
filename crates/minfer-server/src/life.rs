//! A server's life: connections are taken, limited and, at the end, drained.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::{self, Rules};
use crate::tls::Tls;
use crate::{ApiError, Limits};

/// When no connection can be taken for want of descriptors or memory, the next try is after this.
const ACCEPT_AGAIN: Duration = Duration::from_millis(500);
/// Beyond the limit so many connections at once are told so; still more are closed without a word.
const REFUSED_AT_ONCE: usize = 64;
/// Who is refused has so long to send a request and read why.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// A connection whose other side has gone without a word is noticed after about two minutes.
const PROBES: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// What connections are served with.
pub struct Life {
    /// All paths.
    pub router: Router,
    /// Limits.
    pub limits: Limits,
    /// For `https`.
    pub tls: Option<Tls>,
    /// Becomes true when the server is to end.
    pub draining: watch::Sender<bool>,
}

impl Life {
    /// Takes connections until `stop` is done, then waits for the running requests. Whoever still connects is served,
    /// [`REFUSED_AT_ONCE`] at once and for [`REFUSED_FOR`] at most: the router refuses requests while it drains, in
    /// words. The result is how many connections were cut off in a request.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> usize {
        let life = Arc::new(self);
        let free = Arc::new(Semaphore::new(life.limits.connections));
        let spare = Arc::new(Semaphore::new(REFUSED_AT_ONCE));
        let (mut open, mut refused) = (JoinSet::new(), JoinSet::new());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                stream = accept(&listener) => match (free.clone().try_acquire_owned(), spare.clone().try_acquire_owned()) {
                    (Ok(place), _) => {
                        let life = life.clone();
                        open.spawn(async move {
                            life.serve(stream).await;
                            drop(place);
                        });
                    }
                    (Err(_), Ok(place)) => {
                        let life = life.clone();
                        refused.spawn(async move {
                            life.refuse(stream).await;
                            drop(place);
                        });
                    }
                    _ => tracing::debug!("a connection too many was closed"),
                },
                Some(_) = open.join_next() => {}
                Some(_) = refused.join_next() => {}
                () = &mut stop => break,
            }
        }
        life.draining.send_replace(true);
        life.drain(&listener, open, spare).await
    }

    async fn drain(
        self: &Arc<Life>,
        listener: &TcpListener,
        mut open: JoinSet<()>,
        spare: Arc<Semaphore>,
    ) -> usize {
        let end = sleep(self.limits.drain);
        tokio::pin!(end);
        let mut late = JoinSet::new();
        loop {
            tokio::select! {
                ended = open.join_next() => if ended.is_none() {
                    return 0;
                },
                stream = accept(listener) => if let Ok(place) = spare.clone().try_acquire_owned() {
                    let life = self.clone();
                    late.spawn(async move {
                        drop(timeout(REFUSED_FOR, life.serve(stream)).await);
                        drop(place);
                    });
                },
                Some(_) = late.join_next() => {}
                () = &mut end => return open.len(), // dropping the set ends them
            }
        }
    }

    /// Serves one connection to its end.
    async fn serve(&self, stream: TcpStream) {
        let rules = Rules {
            limits: &self.limits,
            draining: self.draining.subscribe(),
        };
        self.with_tls(stream, self.router.clone(), rules).await;
    }

    /// Says that there are too many connections.
    async fn refuse(&self, stream: TcpStream) {
        let message = format!(
            "all {} connections are taken (--max-connections of the server)",
            self.limits.connections
        );
        let busy = ApiError {
            retry_after: Some(1),
            ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        };
        let router = Router::new().fallback(async move || busy.clone());
        let rules = Rules {
            limits: &self.limits,
            draining: watch::Sender::new(true).subscribe(),
        };
        drop(timeout(REFUSED_FOR, self.with_tls(stream, router, rules)).await);
    }

    async fn with_tls(&self, stream: TcpStream, router: Router, rules: Rules<'_>) {
        let Some(tls) = &self.tls else {
            return connection::serve(stream, router, rules).await;
        };
        let mut draining = self.draining.subscribe();
        // Who comes later is told why it is refused, within its own time.
        let late = *draining.borrow();
        let told = async { drop(draining.wait_for(|d| *d).await) };
        let shaken = tokio::select! {
            shaken = timeout(self.limits.idle, tls.accept(stream)) => shaken,
            // Nothing has been asked yet: there is nothing to wait for.
            () = told, if !late => return,
        };
        match shaken {
            Ok(Ok(stream)) => connection::serve(stream, router, rules).await,
            Ok(Err(e)) => tracing::debug!("a TLS handshake failed: {e}"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }
}

/// The next connection, however long it takes.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                prepare(&stream);
                return stream;
            }
            Err(e) if is_the_client_s(&e) => {}
            Err(e) => {
                tracing::warn!("no connection can be taken at the moment: {e}");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// An event is sent as it is there, and a client that has vanished is noticed.
fn prepare(stream: &TcpStream) {
    let (idle, interval, retries) = PROBES;
    let probes = socket2::TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(retries);
    let set = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
    if let Err(e) = set.and_then(|()| stream.set_nodelay(true)) {
        tracing::debug!("a connection's options are not set: {e}");
    }
}

/// The client was gone before it was taken.
fn is_the_client_s(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        e.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
