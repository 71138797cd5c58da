//! Model, Engine, Request, Event: what run, chat and the server drive.
