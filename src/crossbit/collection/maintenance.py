"""Maintenance of a collection: statistics, verification, compaction, and other models."""

from collections.abc import Iterable, Mapping, Sequence

from crossbit.collection.encoder import Encoder, Inputs, check_model
from crossbit.collection.store import Store
from crossbit.collection.types import Finding, Id, Stats
from crossbit.model.hashmodel import HashModel


class Maintenance:
    """The methods of `Collection` that concern all of its items at once."""

    _store: Store
    _encoder: Encoder

    def stats(self) -> Stats:
        """Return statistics: items, modalities, bytes, and the health of the codes."""
        return self._store.stats()

    def check(self) -> list[Finding]:
        """Verify all files and rebuild corrupted indexes.

        Returns:
            One finding per problem; empty if everything is intact.
        """
        return self._store.check()

    def compact(self) -> None:
        """Free the space of deleted items, and save the indexes."""
        self._store.compact()

    def upgrade(
        self,
        model: HashModel,
        batches: Iterable[tuple[Sequence[Id], Mapping[str, Inputs]]] | None = None,
    ) -> None:
        """Switch to another model, with new codes for all items; no search sees a mixture.

        Args:
            model: The new model; it must have every modality that items have.
            batches: Ids and rows (or raw inputs) of all items, if features were not kept or should
                be replaced.
        """
        check_model(model)
        rows = None if batches is None else Encoder(model).feature_batches(batches)
        self._store.upgrade(model, rows)
        self._encoder = Encoder(self._store.model(), self._store.keep)

    def extend(self, model: HashModel) -> None:
        """Switch to a model that has further modalities, such as a new version of an encoder.

        No stored code is touched. Old and new modalities serve side by side: queries of a new one
        find items by their old codes, and items can be written with both. Others can search and
        write meanwhile.

        Args:
            model: The new model; it encodes the modalities that the collection's model has with
                the same layers (`HashModel.modality_fingerprint`).
        """
        check_model(model)
        self._store.extend(model)
        self._encoder = Encoder(self._store.model(), self._store.keep)
