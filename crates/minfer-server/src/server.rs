//! A server from its options to its end.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::app::{App, router};
use crate::models::{Loader, ModelName, Models};

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address to listen on; port 0: any.
    pub address: SocketAddr,
    /// The models there are; the first is loaded at the start.
    pub models: Vec<ModelName>,
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
    /// Two models have one name.
    #[error("two models are called '{0}': give one of them another name")]
    SameName(String),
    /// The first model could not be loaded.
    #[error("{0}")]
    Model(String),
    /// Connections are no longer accepted.
    #[error("the server has stopped: {0}")]
    Accept(std::io::Error),
}

/// A server whose port is bound.
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
}

impl Server {
    /// Binds the port; no model is loaded yet.
    ///
    /// # Errors
    /// The port can't be bound; no model, or two of one name.
    pub async fn bind(options: ServerOptions, loader: Loader) -> Result<Server, ServerError> {
        if options.models.is_empty() {
            return Err(ServerError::NoModel);
        }
        for (i, name) in options.models.iter().enumerate() {
            if options
                .models
                .iter()
                .skip(i)
                .skip(1)
                .any(|o| o.id == name.id)
            {
                return Err(ServerError::SameName(name.id.clone()));
            }
        }
        let address = options.address;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ServerError::Bind { address, source })?;
        let models = Models::new(options.models.clone(), loader);
        let app = Arc::new(App { models, options });
        Ok(Server { listener, app })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Loads the first model and serves until `stop` is done; `ready` is called once the model is loaded.
    ///
    /// # Errors
    /// The first model can't be loaded; connections can't be accepted.
    pub async fn run(
        self,
        ready: impl FnOnce(),
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServerError> {
        let app = self.app.clone();
        let serve = axum::serve(self.listener, router(self.app)).with_graceful_shutdown(stop);
        let load = async {
            let loaded = app.models.get(None).await;
            loaded.map_err(|e| ServerError::Model(e.message))?;
            ready();
            std::future::pending::<Result<(), ServerError>>().await
        };
        tokio::select! {
            served = serve.into_future() => served.map_err(ServerError::Accept),
            failed = load => failed,
        }
    }
}
