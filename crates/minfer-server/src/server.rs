//! A server from its options to its end.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Limits;
use crate::app::{App, router};
use crate::guard::{Guard, GuardError, GuardOptions};
use crate::life::Life;
use crate::loader::Loader;
use crate::metrics::Requests;
use crate::models::{Loaded, ModelName, Models, Residency};
use crate::ollama::Known;
use crate::tls::{Tls, TlsError, TlsFiles};

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address to listen on; port 0: any.
    pub address: SocketAddr,
    /// The models there are; the first is loaded at the start.
    pub models: Vec<ModelName>,
    /// How many of them are loaded at once, and for how long.
    pub residency: Residency,
    /// How much of everything a client may have.
    pub limits: Limits,
    /// Who may come in.
    pub guard: GuardOptions,
    /// For `https`.
    pub tls: Option<TlsFiles>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            address: ([127, 0, 0, 1], 8080).into(),
            models: Vec::new(),
            residency: Residency::default(),
            limits: Limits::default(),
            guard: GuardOptions::default(),
            tls: None,
        }
    }
}

/// Why a server can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken, or none of this machine's.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// There is no model to serve.
    #[error("there is no model to serve: name one")]
    NoModel,
    /// A model has no name that a client could ask for.
    #[error("a model is named '{0}': give it a name that shows")]
    NoName(String),
    /// Two models have one name.
    #[error("two models are called '{0}': give one of them another name")]
    SameName(String),
    /// The first model could not be loaded.
    #[error("{0}")]
    Model(String),
    /// A key, a host or an origin is none.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Not all requests ended in time.
    #[error(
        "{connections} requests were cut off: they had not ended within {limit:?} (--drain-timeout)"
    )]
    CutOff {
        /// How many.
        connections: usize,
        /// How long they had.
        limit: std::time::Duration,
    },
}

/// A server whose port is bound.
pub struct Server {
    listener: TcpListener,
    tls: Option<Tls>,
    app: Arc<App>,
}

/// A look into a running server.
#[derive(Clone)]
pub struct Handle(Arc<App>);

impl Handle {
    /// The loaded models.
    pub fn loaded(&self) -> Vec<Arc<Loaded>> {
        self.0.models.loaded()
    }
}

impl Server {
    /// Binds the port; no model is loaded yet.
    ///
    /// # Errors
    /// The port can't be bound; no model, or two of one name; keys, hosts, origins or TLS files that are none.
    pub async fn bind(options: ServerOptions, loader: Loader) -> Result<Server, ServerError> {
        check_names(&options.models)?;
        let address = options.address;
        let guard = Guard::new(&options.guard, address)?;
        let tls = options.tls.as_ref().map(Tls::read).transpose()?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ServerError::Bind { address, source })?;
        let models = Models::new(options.models.clone(), options.residency.clone(), loader);
        let app = Arc::new(App {
            models,
            known: Known::default(),
            guard,
            requests: Requests::default(),
            draining: watch::Sender::new(false),
            options,
        });
        Ok(Server { listener, tls, app })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// For looks into it while it runs.
    pub fn handle(&self) -> Handle {
        Handle(self.app.clone())
    }

    /// Loads the first model and serves until `stop` is done; then lets the running requests end. `ready` is called once
    /// the model is loaded.
    ///
    /// # Errors
    /// The first model can't be loaded; requests did not end in time.
    pub async fn run(
        self,
        ready: impl FnOnce(),
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let app = self.app;
        let limit = app.options.limits.drain;
        let life = Life {
            router: router(app.clone()),
            limits: app.options.limits.clone(),
            tls: self.tls,
            draining: app.draining.clone(),
        };
        let load = async {
            let loaded = app.models.get(None).await;
            loaded.map_err(|e| ServerError::Model(e.message))?;
            ready();
            match std::future::pending::<std::convert::Infallible>().await {}
        };
        tokio::select! {
            cut_off = life.run(self.listener, stop) => match cut_off {
                0 => Ok(()),
                connections => Err(ServerError::CutOff { connections, limit }),
            },
            failed = load => failed,
            never = app.models.tend() => match never {},
        }
    }
}

fn check_names(models: &[ModelName]) -> Result<(), ServerError> {
    if models.is_empty() {
        return Err(ServerError::NoModel);
    }
    for (i, name) in models.iter().enumerate() {
        if name.id.trim().is_empty() {
            return Err(ServerError::NoName(name.id.clone()));
        }
        let mut others = models.iter().skip(i).skip(1);
        if others.any(|o| o.id == name.id) {
            return Err(ServerError::SameName(name.id.clone()));
        }
    }
    Ok(())
}
