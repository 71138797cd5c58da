//! A conversation whose last message the model goes on with.

use serde_json::json;

use super::user_text::marks;
use super::{ChatError, ChatTemplate, RenderRequest, Rendered};

impl ChatTemplate {
    /// The rendering up to the end of what the last message says. transformers finds that place in the same way (`continue_final_message`): by a mark behind
    /// the text, and a space behind the mark, which a template that trims what is said takes away: the text's own white space is gone then, too.
    pub(super) fn render_begun(&self, request: &RenderRequest) -> Result<Rendered, ChatError> {
        let refused = |why| Err(ChatError::Continue { why });
        let mut marked = RenderRequest {
            continue_final_message: false,
            add_generation_prompt: false,
            ..request.clone()
        };
        let all = json!([request.messages, request.tools, request.extra]).to_string();
        let mark = marks(&[&all, self.source()]).next();
        let (Some(mark), Some(last)) = (mark, marked.messages.last_mut()) else {
            return refused("it holds every character there is");
        };
        if last.role != "assistant" {
            return refused("it is not the assistant's");
        }
        if last.calls() {
            return refused("it calls tools");
        }
        let said = last.text();
        last.append(&format!("{mark} "));
        let mut rendered = self.render(&marked)?;
        let mut parts = rendered.text.split(mark);
        let (before, after) = match (parts.next(), parts.next(), parts.next()) {
            (Some(before), Some(after), None) => (before, after),
            (_, None, _) => return refused("this model's chat template does not show it"),
            _ => return refused("this model's chat template shows it more than once"),
        };
        let space = said.get(said.trim_end().len()..).unwrap_or_default();
        let kept = before
            .strip_suffix(space)
            .filter(|_| !after.starts_with(' '));
        let end = kept.unwrap_or(before).len();
        rendered.text.truncate(end);
        rendered.user.retain(|range| range.start < end);
        if let Some(range) = rendered.user.last_mut() {
            range.end = range.end.min(end);
        }
        Ok(rendered)
    }
}
